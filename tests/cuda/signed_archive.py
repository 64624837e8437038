# SPDX-License-Identifier: Apache-2.0
"""Makes a small signed archive in the form of NVIDIA's, with packages for two versions of CUDA."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

CONTROL = """Package: {name}
Version: {version}
Architecture: all
Maintainer: nobody <nobody@localhost>
Description: a package of a test
"""
PACKAGES = (
    ("cuda-libraries-12-8", "12.8.1-1"),
    ("cuda-toolkit-12-8", "12.8.1-1"),
    ("cuda-nvml-dev-12-8", "12.8.1-1"),
    ("cuda-libraries-13-0", "13.0.0-1"),
    ("cuda-toolkit-13-0", "13.0.0-1"),
    ("libnccl2", "2.26.2-1+cuda12.8"),
    ("libnccl2", "2.28.3-1+cuda13.0"),
    ("libnccl-dev", "2.26.2-1+cuda12.8"),
    ("libnccl-dev", "2.28.3-1+cuda13.0"),
)


@dataclass(frozen=True)
class SigningKey:
    """A key of nobody's: GnuPG's folder, the fingerprint, and the armored public half."""

    home: Path
    fingerprint: str
    public: Path


def make_key(folder: Path, *, expired: bool = False) -> SigningKey:
    """A fresh key, or one that was valid for a day of 2020."""
    folder.mkdir(mode=0o700)
    gpg = ["gpg", "--homedir", str(folder), "--batch", "--quiet", "--passphrase", ""]
    if expired:
        gpg += ["--faked-system-time", "20200101T000000"]
    subprocess.run(
        [*gpg, "--quick-gen-key", "test", "ed25519", "sign", "1d" if expired else "never"],
        check=True,
        capture_output=True,
    )
    listed = subprocess.run(
        [*gpg, "--with-colons", "--list-keys"], check=True, capture_output=True, text=True
    )
    fingerprint = next(line.split(":")[9] for line in listed.stdout.splitlines() if line.startswith("fpr"))
    public = folder / "public.asc"
    armored = subprocess.run([*gpg, "--armor", "--export", fingerprint], check=True, capture_output=True)
    public.write_bytes(armored.stdout)
    return SigningKey(folder, fingerprint, public)


def make_archive(folder: Path) -> None:
    """Packages, their index, and a Release that nobody has signed yet."""
    folder.mkdir()
    stanzas = []
    for name, version in PACKAGES:
        root = folder / "build" / f"{name}_{version}"
        (root / "DEBIAN").mkdir(parents=True)
        (root / "usr/local/cuda-test").mkdir(parents=True)
        (root / "usr/local/cuda-test" / name).write_text(version)
        control = CONTROL.format(name=name, version=version)
        (root / "DEBIAN/control").write_text(control)
        deb = folder / f"{name}_{version}_all.deb"
        pack = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(root), str(deb)]
        subprocess.run(pack, check=True, capture_output=True)
        content = deb.read_bytes()
        stanzas.append(
            f"{control}Filename: ./{deb.name}\nSize: {len(content)}\n"
            f"SHA256: {hashlib.sha256(content).hexdigest()}\n"
        )
    index = "\n".join(stanzas).encode()
    (folder / "Packages").write_bytes(index)
    digest = hashlib.sha256(index).hexdigest()
    (folder / "Release").write_text(
        "Origin: NVIDIA\nLabel: test\nArchitectures: amd64 arm64\n"
        f"Date: Sat, 01 Nov 2025 00:00:00 UTC\nSHA256:\n {digest} {len(index)} Packages\n"
    )


def sign(folder: Path, key: SigningKey) -> None:
    """Sign the Release as it is now."""
    gpg = ["gpg", "--homedir", str(key.home), "--batch", "--quiet", "--yes", "--passphrase", ""]
    out = ["--output", str(folder / "InRelease"), "--clearsign", str(folder / "Release")]
    subprocess.run([*gpg, *out], check=True, capture_output=True)
