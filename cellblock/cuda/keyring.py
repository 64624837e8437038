# SPDX-License-Identifier: Apache-2.0
"""Fetches the key that signs an apt archive, and takes it only if it has the declared fingerprint."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

from cellblock.errors import CellblockError
from cellblock.packages.transfer import Broken, Missing, Refused, Transfers

# A key is a few kilobytes; a page of a hotel's login is not read to its end.
_MOST = 1 << 20


def make_keyring(key: str, fingerprint: str, keyring: Path, where: str) -> None:
    """Write the public key with `fingerprint` (40 hexadecimal digits), and no other, to `keyring`.

    `key` is a path or URL of a file with it, armored or not. Raises CellblockError when it cannot be had,
    has another fingerprint or has expired; `where` names the variant's key in messages.
    """
    content = _read(key, where)
    with tempfile.TemporaryDirectory(prefix="cellblock-") as home:
        file = Path(home, "key")
        file.write_bytes(content)
        found = _fingerprints(file, home)
        if not found:
            raise CellblockError(
                f"{where}: {key} holds no OpenPGP key",
                hint="name the repository's public key, armored or not",
            )
        if fingerprint not in found:
            raise CellblockError(
                f"{where}: {key} is not the key that variants.yaml means"
                f"\n  expected fingerprint: {fingerprint}\n  found:                {', '.join(found)}",
                hint="compare with what NVIDIA publishes; correct `fingerprint` only if that is the one",
            )
        if found[fingerprint] == "e":
            raise CellblockError(
                f"{where}: the key {fingerprint} in {key} has expired",
                hint="fetch the key again: its owner may have prolonged it",
            )
        _gpg(home, "--import", str(file))
        exported = _gpg(home, "--export", fingerprint)
        keyring.parent.mkdir(parents=True, exist_ok=True)
        part = keyring.with_suffix(".part")
        part.write_bytes(exported)
        part.chmod(0o644)
        part.rename(keyring)


def _read(key: str, where: str) -> bytes:
    if "://" not in key:
        try:
            return Path(key).read_bytes()
        except OSError as error:
            raise CellblockError(
                f"{where}: {key} cannot be read: {error.strerror}", hint="correct `key` in variants.yaml"
            ) from error
    transfers = Transfers(1)
    try:
        with transfers.read(quote(key, safe="/:?&=%@+"), 0) as (_, chunks):
            content = b""
            for chunk in chunks:
                content += chunk
                if len(content) > _MOST:
                    break
            return content
    except (Broken, Missing, Refused) as error:
        raise CellblockError(
            f"{where}: {key} cannot be fetched: {error}",
            hint="correct `key` in variants.yaml, or fetch it yourself and name its path there",
        ) from error
    finally:
        transfers.close()


def _fingerprints(file: Path, home: str) -> dict[str, str]:
    """Fingerprint -> validity of the primary keys in `file` (gpg, doc/DETAILS: pub, then its fpr)."""
    listed = _gpg(home, "--with-colons", "--show-keys", str(file), check=False).decode(errors="replace")
    found: dict[str, str] = {}
    validity: str | None = None
    for line in listed.splitlines():
        fields = line.split(":")
        if fields[0] in ("pub", "sub", "sec"):
            validity = fields[1] if fields[0] == "pub" else None
        elif fields[0] == "fpr" and validity is not None:
            found[fields[9]] = validity
            validity = None
    return found


def _gpg(home: str, *arguments: str, check: bool = True) -> bytes:
    argv = ["gpg", "--homedir", home, "--batch", "--quiet", "--no-autostart", *arguments]
    try:
        done = subprocess.run(argv, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise CellblockError(
            "gpg is not installed", hint="`python3 build.py doctor` names its package"
        ) from error
    if check and done.returncode:
        raise CellblockError(
            f"gpg failed: {done.stderr.decode(errors='replace').strip()}",
            hint="fetch the key again: it may be cut off",
        )
    return done.stdout
