# SPDX-License-Identifier: Apache-2.0
"""Makes empty packages in place of large dependencies that no node has a use for (equivs(1)).

`images/variants.yaml` names them and says why. They are packed once, into an archive below CELLBLOCK_CACHE.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cellblock.cache_key import digest_of
from cellblock.errors import CellblockError
from cellblock.packages.flat_archive import FlatArchive
from cellblock.process import Programs

_FORMAT = 1
_EPOCH = "1000000000"
# Above every version that an archive will have: an upgrade inside the jail keeps it.
_VERSION = "99:0+cellblock1"
_CONTROL = """\
Package: {name}
Version: {version}
Architecture: {architecture}
Multi-Arch: same
Maintainer: Cellblock <root@localhost>
Section: misc
Priority: optional
Description: empty stand-in for {name}
 {reason}
 .
 To have the real one: apt-get install {name}=VERSION, with a version that
 apt-cache madison {name} lists.
"""


@dataclass(frozen=True)
class StandIns:
    """The archive of `packages`, name -> reason. `architecture` is Debian's name; `folder` holds all such."""

    packages: Mapping[str, str]
    architecture: str
    folder: Path

    @cached_property
    def key(self) -> str:
        """Changes with whatever shapes a package."""
        return digest_of([_FORMAT, _VERSION, _CONTROL, self.architecture, sorted(self.packages.items())])

    @property
    def archive(self) -> FlatArchive:
        """Where they are, once they are packed."""
        return FlatArchive(self.folder, self.key)

    def ensure(self) -> None:
        """Pack them if they are not there. Raises CellblockError without dpkg-deb, or when that fails."""
        if self.archive.is_made:
            return
        if shutil.which("dpkg-deb") is None:
            raise CellblockError("dpkg-deb is not installed", hint="run `python3 build.py doctor`")
        self.archive.ensure(self._fill)

    def _fill(self, folder: Path) -> None:
        for name, reason in sorted(self.packages.items()):
            self._pack(name, reason, folder)
        self._index(folder)

    def _control(self, name: str, reason: str) -> str:
        return _CONTROL.format(
            name=name, version=_VERSION, architecture=self.architecture, reason=" ".join(reason.split())
        )

    def _pack(self, name: str, reason: str, target: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="cellblock-") as work:
            root = Path(work, "root")
            note = root / f"usr/share/doc/{name}/README.Cellblock"
            for folder in (note.parent, root / "DEBIAN"):
                folder.mkdir(parents=True)
            note.write_text(f"This package is empty. {' '.join(reason.split())}\n", encoding="utf-8")
            (root / "DEBIAN/control").write_text(self._control(name, reason), encoding="utf-8")
            for path in (root, *root.rglob("*")):
                path.chmod(0o755 if path.is_dir() else 0o644)
            Programs().run(
                ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(root), str(target)],
                env={"SOURCE_DATE_EPOCH": _EPOCH},
            )

    def _index(self, folder: Path) -> None:
        stanzas = []
        for path in sorted(folder.glob("*.deb")):
            name, data = path.name.partition("_")[0], path.read_bytes()
            stanzas.append(
                f"{self._control(name, self.packages[name])}Filename: ./{path.name}\nSize: {len(data)}\n"
                f"SHA256: {hashlib.sha256(data).hexdigest()}\n"
            )
        text = "\n".join(stanzas).encode()
        (folder / "Packages").write_bytes(text)
        (folder / "Release").write_text(
            f"Origin: Cellblock\nLabel: Stand-ins\nSuite: stand-ins\nArchitectures: {self.architecture}\n"
            "Date: Sun, 09 Sep 2001 01:46:40 UTC\nSHA256:\n"
            f" {hashlib.sha256(text).hexdigest()} {len(text)} Packages\n",
            encoding="utf-8",
        )
