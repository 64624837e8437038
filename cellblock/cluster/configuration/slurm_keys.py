# SPDX-License-Identifier: Apache-2.0
"""Makes, reads and writes the keys of auth/slurm in slurm.jwks, a set of JSON web keys (RFC 7517, 5).

Slurm's daemons sign their messages by them, from Slurm 24.05 on: by the key whose `use` is "default". They
take what any key of the set has signed, so a set of two serves to replace a key. rotating/slurm_auth_key.py
does that step by step.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from dataclasses import dataclass

# HS256: at least as long as its hash (RFC 7518, 3.2). A multiple of three: base64 without padding.
_BYTES = 48
_KID_BYTES = 6
# Seconds that a token for a test of a key is good for, and who it says to be: nobody.
_TRIAL_S = 60
_NOBODY = 65534
# "Any uid may read it", as Slurm's daemons write it.
_ANY = 0xFFFFFFFF


@dataclass(frozen=True)
class Key:
    """A key: `kid` is its name, by which tokens say what has signed them."""

    kid: str
    secret: bytes


@dataclass(frozen=True)
class KeySet:
    """Keys that are taken, and the name of the one that signs."""

    keys: tuple[Key, ...]
    default: str

    @property
    def signing(self) -> Key:
        """The key that signs."""
        return next(key for key in self.keys if key.kid == self.default)


def new_key() -> Key:
    """A key that nobody has seen."""
    return Key(f"cellblock-{secrets.token_hex(_KID_BYTES)}", secrets.token_bytes(_BYTES))


def only(key: Key) -> KeySet:
    """The set of one key."""
    return KeySet((key,), key.kid)


def text(keys: KeySet) -> bytes:
    """The file of `keys`."""
    listed = [
        {
            "alg": "HS256",
            "kty": "oct",
            "kid": key.kid,
            "k": _base64(key.secret),
            **({"use": "default"} if key.kid == keys.default else {}),
        }
        for key in keys.keys
    ]
    return json.dumps({"keys": listed}, indent=1).encode() + b"\n"


def parse(content: bytes) -> KeySet:
    """The keys of a file that `text` made. Raises ValueError for another."""
    try:
        listed = json.loads(content)["keys"]
        keys = tuple(Key(one["kid"], base64.urlsafe_b64decode(one["k"])) for one in listed)
        default = [one["kid"] for one in listed if one.get("use") == "default"]
        return KeySet(keys, default[0])
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"no set of keys of Cellblock's: {error!r}") from error


def token_of_nobody(key: Key) -> str:
    """A token by `key` that says to be nobody: who takes it has the key."""
    now = int(time.time())
    grants = {
        "iat": now,
        "exp": now + _TRIAL_S,
        "ruid": _ANY,
        "context": "sack",
        "uid": _NOBODY,
        "gid": _NOBODY,
        "host": "cellblock",
    }
    parts = ({"alg": "HS256", "typ": "JWT", "kid": key.kid}, grants)
    signed = ".".join(_base64(json.dumps(part).encode()) for part in parts)
    signature = hmac.new(key.secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{_base64(signature)}"


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
