# SPDX-License-Identifier: Apache-2.0
"""Makes an apt archive of packages of a few bytes, within milliseconds, in a folder of the test."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import time
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

from cellblock.lock.archives import PackageArchive
from cellblock.lock.model import LockedPackage


@dataclass
class SmallArchive:
    """The archive in `folder`; `publish` writes its indexes."""

    folder: Path
    suite: str = "trixie"
    label: str = "Test"
    stanzas: list[str] = field(default_factory=list)

    def add(
        self, name: str, version: str = "1", *, size: int = 0, postinst: str = "", **fields: str
    ) -> LockedPackage:
        """A package holding a file of `size` bytes; `fields` are control fields: Depends, Essential ...

        `postinst` are shell lines that run when it is configured.
        """
        tree = self.folder / "trees" / f"{name}_{version}"
        (tree / "DEBIAN").mkdir(parents=True)
        more = "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in fields.items())
        control = (
            f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody <n@test>\n"
            f"Installed-Size: 3\n{more}Description: a test\n"
        )
        (tree / "DEBIAN" / "control").write_text(control)
        if postinst:
            (tree / "DEBIAN" / "postinst").write_text(f"#!/bin/sh\nset -e\n{postinst}")
            (tree / "DEBIAN" / "postinst").chmod(0o755)
        share = tree / "usr" / "share" / name
        share.mkdir(parents=True)
        # Not compressible, and the same each time.
        (share / "data").write_bytes(hashlib.shake_128(name.encode()).digest(size))
        filename = f"pool/{name}_{version.replace(':', '%3a')}_amd64.deb"
        deb = self.folder / filename
        deb.parent.mkdir(exist_ok=True)
        build = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(deb)]
        subprocess.run(build, check=True, capture_output=True)
        data = deb.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        self.stanzas.append(f"{control}Filename: {filename}\nSize: {len(data)}\nSHA256: {sha256}\n")
        return LockedPackage(
            name=name,
            version=version,
            architecture="amd64",
            sha256=sha256,
            size=len(data),
            installed_size=3072,
            filename=filename,
            archive=0,
            origin="Test trixie/main",
            security=False,
            images=("base",),
        )

    def publish(self, *, valid_days: float | None = None, only_compressed: bool = False) -> SmallArchive:
        """Write dists/SUITE; `valid_days` from now on the Release file is valid (negative: expired)."""
        dist = self.folder / "dists" / self.suite
        binary = dist / "main" / "binary-amd64"
        binary.mkdir(parents=True, exist_ok=True)
        text = "\n".join(self.stanzas).encode()
        (binary / "Packages.gz").write_bytes(gzip.compress(text))
        (binary / "Packages").write_bytes(text)
        now = time.time()
        dates = f"Date: {formatdate(now - 10 * 86400, usegmt=True)}\n"
        if valid_days is not None:
            dates += f"Valid-Until: {formatdate(now + valid_days * 86400, usegmt=True)}\n"
        sums = "".join(
            f" {_sha256(path)} {path.stat().st_size} {path.relative_to(dist)}\n"
            for path in sorted(binary.glob("Packages*"))
        )
        (dist / "Release").write_text(
            f"Origin: Test\nLabel: {self.label}\nSuite: {self.suite}\nCodename: {self.suite}\n{dates}"
            f"Architectures: amd64\nComponents: main\nSHA256:\n{sums}"
        )
        if only_compressed:  # a Release file names the others all the same
            (binary / "Packages").unlink()
        return self

    @property
    def archive(self) -> PackageArchive:
        """It as an archive of a lock."""
        return self.at(f"file:{self.folder}")

    def at(self, *uris: str) -> PackageArchive:
        """It at other mirrors."""
        return PackageArchive(uris, self.suite, ("main",), ("trusted=yes",))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
