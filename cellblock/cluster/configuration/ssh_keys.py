# SPDX-License-Identifier: Apache-2.0
"""Makes SSH keys by ssh-keygen: the login node's host keys, and the key that opens a session there.

It also reads the fingerprint of a host key, which `up` prints.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.files import durable as records

# ed25519 for everyone of today, RSA for clients that know nothing else.
HOST_KEYS = {"ssh_host_ed25519_key": ("ed25519",), "ssh_host_rsa_key": ("rsa", "-b", "3072")}
"""File of a host key -> what ssh-keygen makes it of."""
LOGIN_KEY = ("ed25519",)
"""What ssh-keygen makes the key of sessions of; every client of today knows it."""


def host_key_fingerprint(secrets: Path) -> str:
    """The login node's ed25519 host key as ssh shows it at a first connection; empty when there is none.

    It is the SHA-256 of the key's blob in base64 (ssh-keygen(1), -l), from the file that ssh-keygen made.
    """
    try:
        blob = (secrets / "login" / "ssh_host_ed25519_key.pub").read_text(encoding="ascii").split()[1]
        digest = hashlib.sha256(base64.b64decode(blob, validate=True)).digest()
    except (OSError, ValueError, IndexError):
        return ""
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def make(path: Path, kind: tuple[str, ...], comment: str) -> None:
    """Make the private key `path`, and the public one beside it with .pub; those of before are replaced.

    Raises CellblockError when ssh-keygen is missing or fails.
    """
    program = shutil.which("ssh-keygen")
    if program is None:
        raise CellblockError(
            "ssh-keygen is not installed, and the login node needs host keys",
            hint="apt-get install openssh-client",
        )
    new = path.with_name(path.name + ".new")
    for left in (new, new.with_name(new.name + ".pub")):
        left.unlink(missing_ok=True)
    argv = [program, "-q", "-N", "", "-C", comment, "-f", str(new), "-t", *kind]
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise CellblockError(
            f"ssh-keygen failed: {done.stderr.strip()}",
            hint="correct what it says, then start the cluster again",
        )
    public = new.with_name(new.name + ".pub")
    public.chmod(0o600)
    for made in (new, public):
        records.flush(made)
    public.replace(path.with_name(path.name + ".pub"))
    new.replace(path)
    records.sync_directory(path.parent)
