# SPDX-License-Identifier: Apache-2.0
"""Signs images and documents in cosign's form: ECDSA over P-256 with SHA-256, in DER.

A key in a PEM file (also an encrypted one, with the password in COSIGN_PASSWORD) signs without other
programs. Keys that only cosign can use, its own encrypted ones and those of a KMS, are left to the program
`cosign`.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cellblock.errors import CellblockError, UsageError
from cellblock.oci.model import canonical

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_PASSWORD = "COSIGN_PASSWORD"
_OF_COSIGN = (b"ENCRYPTED SIGSTORE PRIVATE KEY", b"ENCRYPTED COSIGN PRIVATE KEY")


class Signer(Protocol):
    """Something that signs."""

    def sign(self, data: bytes) -> bytes:
        """The signature over `data`, in DER. Raises CellblockError."""


class PemSigner:
    """Signs with a private key at hand. Deterministic (RFC 6979): signing twice gives one signature."""

    def __init__(self, key: EllipticCurvePrivateKey) -> None:
        self._key = key

    def sign(self, data: bytes) -> bytes:
        """The signature over `data`, in DER."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
        from cryptography.hazmat.primitives.hashes import SHA256

        try:
            return self._key.sign(data, ECDSA(SHA256(), deterministic_signing=True))
        except UnsupportedAlgorithm:  # OpenSSL before 3.2
            return self._key.sign(data, ECDSA(SHA256()))


class CosignSigner:
    """Signs with the program cosign, which finds the key: a file of its own, or `awskms://...`."""

    def __init__(self, key: str) -> None:
        self._key = key

    def sign(self, data: bytes) -> bytes:
        """The signature over `data`, in DER. Raises CellblockError with what cosign says."""
        argv = ["cosign", "sign-blob", "--yes", "--tlog-upload=false", "--key", self._key, "-"]
        done = subprocess.run(argv, input=data, capture_output=True, check=False)
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()[-1000:]
            raise CellblockError(
                f"`{' '.join(argv)}` failed: {said}", hint=f"check the key, and its password in {_PASSWORD}"
            )
        return base64.b64decode(done.stdout.strip())


def load_signer(key: str) -> Signer:
    """The signer of `key`: a PEM file, a key file of cosign, one of both in a variable of the environment
    (env://NAME), or what else cosign calls a key reference.

    Raises UsageError when it is none of them or its password is wrong.
    """
    if not key:
        raise UsageError(
            "--key is empty, and nothing would be signed",
            hint="give the key; where it stands in a variable of the shell, is that set?",
        )
    if key.startswith("env://"):
        data = os.environ.get(key.removeprefix("env://"), "").encode()
        if not data.strip():
            raise UsageError(
                f"--key {key}: the environment has no variable {key.removeprefix('env://')}, or an empty one",
                hint="set it to the private key in PEM; in a CI service it is a secret of the project",
            )
    elif "://" in key:
        return _cosign(key, "a key reference")
    else:
        data = _read(key)
    if any(kind in data for kind in _OF_COSIGN):
        return _cosign(key, "a key file of cosign")
    return PemSigner(_load_pem(key, data))


def signer_of_option(key: str | None) -> Signer | None:
    """The signer of the option --key; None where it is not given. Raises as load_signer does."""
    return None if key is None else load_signer(key)


def _read(key: str) -> bytes:
    try:
        return Path(key).read_bytes()
    except OSError as error:
        raise UsageError(
            f"--key {key}: cannot be read: {error.strerror}",
            hint="give a private key; `openssl ecparam -name prime256v1 -genkey -noout` makes one",
        ) from error


def _load_pem(key: str, data: bytes) -> EllipticCurvePrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    password = os.environ.get(_PASSWORD)
    encrypted = b"ENCRYPTED" in data
    try:
        loaded = load_pem_private_key(data, password.encode() if encrypted and password else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        if encrypted:
            hint = f"put its password into the environment variable {_PASSWORD}"
        else:
            hint = "give a private key in PEM; `openssl ecparam -name prime256v1 -genkey -noout` makes one"
        raise UsageError(f"--key {key}: no private key that can be read", hint=hint) from error
    if not isinstance(loaded, EllipticCurvePrivateKey) or not isinstance(loaded.curve, SECP256R1):
        raise UsageError(
            f"--key {key}: cosign's signatures are ECDSA over P-256, and this key is of another kind",
            hint="make one: `openssl ecparam -name prime256v1 -genkey -noout`",
        )
    return loaded


def _cosign(key: str, kind: str) -> CosignSigner:
    if shutil.which("cosign") is None:
        raise UsageError(
            f"--key {key}: is {kind}, which only the program cosign can use, and that is not installed",
            hint="install cosign, or give a private key in PEM (ECDSA over P-256)",
        )
    return CosignSigner(key)


# -- what is signed --------------------------------------------------------------------------------


def simple_signing(reference: str, digest: str) -> bytes:
    """The payload of an image's signature (containers/image, "simple signing"; cosign, SIGNATURE_SPEC.md)."""
    return canonical(
        {
            "critical": {
                "identity": {"docker-reference": reference},
                "image": {"docker-manifest-digest": digest},
                "type": "cosign container image signature",
            },
            "optional": None,
        }
    )


def envelope(payload_type: str, payload: bytes, signer: Signer) -> bytes:
    """A DSSE envelope v1 around `payload`."""
    signature = signer.sign(pre_authentication_encoding(payload_type, payload))
    data: dict[str, Any] = {
        "payloadType": payload_type,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"sig": base64.b64encode(signature).decode()}],
    }
    return canonical(data)


def pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """What a DSSE signature is over (DSSE v1, protocol.md)."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
