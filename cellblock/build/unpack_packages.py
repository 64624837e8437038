# SPDX-License-Identifier: Apache-2.0
"""Unpacks the packages of a layer by one tar, as dpkg would, and records them as "unpacked" for dpkg.

dpkg unpacks one package after the other, each decompressed anew. Most packages are files and a script that
runs afterwards, so tar can unpack them from debs that were taken apart when they were fetched
(`cellblock.packages.unpacked_deb`); dpkg then configures them. dpkg itself unpacks the others: those with a
script that runs before unpacking, with triggers waited for, with a file of another package, or a diversion.
"""

from __future__ import annotations

import os
import shlex
import stat
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cellblock.engine import apt
from cellblock.errors import CellblockError
from cellblock.lock.model import LockedPackage
from cellblock.oci.layer import Frame
from cellblock.packages.unpacked_deb import Folder, UnpackedDeb

_ADMIN = "var/lib/dpkg"
_BUFFER = 1 << 20
# Two empty blocks end a tar.
_END = b"\0" * 1024

MERGED = ("bin", "lib", "lib64", "sbin")
"""Folders of / that are links into /usr on 64-bit systems."""

TAR = (
    *("tar", "--extract", "--file=-", "--numeric-owner", "--preserve-permissions"),
    # As dpkg does: what leads to a file may be a symbolic link to a folder.
    "--keep-directory-symlink",
)
"""Reads what `feed` writes; where is to be added."""


@dataclass(frozen=True)
class Opened:
    """A package of a layer, and its deb taken apart: `files` is compressed by zstd."""

    package: LockedPackage
    deb: UnpackedDeb
    files: Path


@dataclass(frozen=True)
class Unpacking:
    """How a layer's packages get into its root. Both lists are in the order of dependencies.

    `folders` are those that are not there yet, `status` is dpkg's database with what is laid down; `triggers`
    are those that laying down activates.
    """

    laid: tuple[Opened, ...]
    by_dpkg: tuple[Opened, ...]
    folders: tuple[Folder, ...]
    status: bytes
    triggers: tuple[str, ...]


class _Root:
    """A root made of `trees`, the lowest first, with dpkg's database in it."""

    def __init__(self, trees: Sequence[Path]) -> None:
        self._trees = trees
        self._merged = {name for name in MERGED for tree in trees if (tree / name).is_symlink()}

    def true(self, path: str) -> str:
        """The name under which a path is known once: /lib may be a link to /usr/lib."""
        return f"/usr{path}" if path.split("/", 2)[1] in self._merged and path.count("/") > 1 else path

    def has(self, path: str) -> bool:
        """Whether something is there."""
        return self._mode(path) is not None

    def has_folder(self, path: str) -> bool:
        """Whether a path is there as a folder, or as a link, which dpkg takes for one."""
        mode = self._mode(path)
        return mode is not None and (stat.S_ISDIR(mode) or stat.S_ISLNK(mode))

    def _mode(self, path: str) -> int | None:
        for tree in reversed(self._trees):
            with suppress(OSError):
                return (tree / self.true(path).lstrip("/")).lstat().st_mode
        return None

    def database(self, name: str) -> str:
        """A file below /var/lib/dpkg; empty when there is none."""
        for tree in reversed(self._trees):
            path = tree / _ADMIN / name
            if path.is_file() and not path.is_symlink():
                return path.read_text(encoding="utf-8", errors="surrogateescape")
        return ""

    def taken(self) -> set[str]:
        """Paths of packages that are there, folders among them, and paths whose files dpkg puts elsewhere."""
        paths: set[str] = set()
        for tree in self._trees:
            for listing in (tree / _ADMIN / "info").glob("*.list"):
                paths.update(listing.read_text(encoding="utf-8", errors="surrogateescape").splitlines())
        # Three lines each: from, to, by whom (dpkg-divert(1)).
        paths.update(self.database("diversions").splitlines()[::3])
        # Owner, group, mode, path (dpkg-statoverride(1)).
        paths.update(line.split(" ", 3)[-1] for line in self.database("statoverride").splitlines())
        return {self.true(path) for path in paths}


def plan_unpacking(packages: Sequence[Opened], trees: Sequence[Path]) -> Unpacking:
    """Decide for each of `packages`, in the order of dependencies, who unpacks it over `trees`."""
    root = _Root(trees)
    paths = {each.package.name: [root.true(path) for path in each.deb.paths] for each in packages}
    taken = _twice(paths.values()) | root.taken()
    laid: list[Opened] = []
    by_dpkg: list[Opened] = []
    for each in packages:
        plain = (
            not each.deb.by_dpkg
            and taken.isdisjoint(paths[each.package.name])
            # dpkg compares a conffile with one that is there, whoever made it.
            and not any(root.has(path) for path in each.deb.conffiles)
        )
        (laid if plain else by_dpkg).append(each)
    # A new root gets the files of all: nothing can run before.
    folders = {
        folder.path: folder for each in reversed(laid if trees else packages) for folder in each.deb.folders
    }
    stanzas = [stanza for stanza in [root.database("status").strip("\n")] if stanza]
    stanzas += [_unpacked(each.deb.control).strip("\n") for each in laid]
    text = "\n\n".join(stanzas) + "\n"
    return Unpacking(
        tuple(laid),
        tuple(by_dpkg),
        tuple(folders[path] for path in sorted(folders) if not root.has_folder(path)),
        text.encode("utf-8", "surrogateescape"),
        tuple(sorted(_triggers(laid, root.database("triggers/File")))),
    )


def feed(opened: Iterable[Opened], unpacking: Unpacking, to: IO[bytes]) -> None:
    """Write a tar of new folders, of the files of `opened` and of dpkg's database.

    Raises CellblockError when what the store holds is damaged.
    """
    import zstandard

    for folder in unpacking.folders:
        to.write(_header(f".{folder.path}", tarfile.DIRTYPE, folder))
    for each in opened:
        try:
            with each.files.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
                while chunk := stream.read(_BUFFER):
                    to.write(chunk)
        except zstandard.ZstdError as error:
            raise CellblockError(
                f"{each.files}: damaged, what the package store keeps of {each.package.name}: {error}",
                hint="`build.py cache check` removes it; then build again",
            ) from error
    status = unpacking.status
    to.write(_header(f"./{_ADMIN}/status", tarfile.REGTYPE, size=len(status)))
    to.write(status + b"\0" * (-len(status) % 512) + _END)


def _header(name: str, kind: bytes, folder: Folder | None = None, size: int = 0) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.type, entry.size = kind, size
    if folder:
        _, entry.mode, entry.uid, entry.gid, entry.mtime = folder
    return entry.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def frames(laid: Iterable[Opened], tree: Path, mark: int, epoch: int) -> list[Frame]:
    """The packages of `laid` whose files in `tree` are as they were laid down, before `mark` (nanoseconds).

    No entry may be newer than `epoch`, in seconds: layers have nothing that is.
    """
    links = {name for name in MERGED if (tree / name).is_symlink()}
    found = []
    for each in laid:
        names = [path.lstrip("/") for path in (*each.deb.paths, *each.deb.info)]
        same = each.deb.newest <= epoch and not any(
            name.split("/", 1)[0] in links for name in names if "/" in name
        )
        if same and all(_unchanged(tree / name, mark) for name in names):
            found.append(Frame(each.files, frozenset(map(os.fsencode, names))))
    return found


def _unchanged(path: Path, mark: int) -> bool:
    try:
        # The time that nobody can set: of the last change to what is in a file, its mode or its owner.
        return path.lstat().st_ctime_ns <= mark
    except OSError:
        return False


def finish(unpacking: Unpacking, repository: str, first: Sequence[str] = ()) -> str:
    """A shell command that does what is left to dpkg, whose debs are in `repository`.

    `first` names what is configured first, whatever it waits for: a new root needs its users.
    """
    flags = [f"--{flag}" for flag in apt.DPKG_OPTIONS]
    commands: list[list[str]] = []
    waiting: list[str] = []
    packages = {each.package.name: each.package for each in (*unpacking.laid, *unpacking.by_dpkg)}
    configured: set[str] = set()
    for each in unpacking.by_dpkg:
        before = [] if first else in_order(each.deb.pre_depends, packages)
        if new := [name for name in before if name not in configured]:
            commands += _unpack(flags, waiting)
            waiting = []
            commands.append(["dpkg", *flags, "--configure", *new])
            configured.update(new)
        waiting.append(f"{repository}/{each.package.deb}")
    commands += _unpack(flags, waiting)
    if first:
        commands.append(["dpkg", *flags, "--force-depends", "--configure", *first])
    commands += [["dpkg-trigger", "--no-await", name] for name in unpacking.triggers]
    commands.append(["dpkg", *flags, "--configure", "--pending"])
    return " && ".join(shlex.join(command) for command in commands)


def _unpack(flags: Sequence[str], debs: Sequence[str]) -> list[list[str]]:
    # What they depend on is unpacked, or is in the same layer: configuring waits for it, unpacking need not.
    return [["dpkg", *flags, "--force-depends", "--unpack", *debs]] if debs else []


def in_order(names: Iterable[str], packages: Mapping[str, LockedPackage]) -> list[str]:
    """`names` and all of `packages` that they need, each after what it needs.

    As far as they do not need each other in a circle. Names that are none of `packages` are left out.
    """
    ordered: dict[str, None] = {}
    entered: set[str] = set()

    def visit(name: str) -> None:
        if name in entered or name not in packages:
            return
        entered.add(name)
        for need in packages[name].depends:
            for each in need.split(" | "):
                visit(each)
        ordered[name] = None

    for name in names:
        visit(name)
    return list(ordered)


def _twice(packages: Iterable[Iterable[str]]) -> set[str]:
    """Paths that several packages have: which one wins is dpkg's to say."""
    seen: set[str] = set()
    twice: set[str] = set()
    for paths in packages:
        twice.update(seen.intersection(paths))
        seen.update(paths)
    return twice


def _unpacked(control: str) -> str:
    """A stanza as dpkg's database holds it of a package that was unpacked."""
    head, _, rest = control.partition("\n")
    return f"{head}\nStatus: install ok unpacked\n{rest}"


def _triggers(laid: Sequence[Opened], interests: str) -> set[str]:
    """What laying down activates: by name, and of the paths that others wait for (`triggers/File`)."""
    activated = {name for each in laid for name in each.deb.activates}
    paths = [line.rpartition(" ")[0] for line in interests.splitlines()]
    for each in laid:
        for path in paths:
            if any(name == path or name.startswith(f"{path}/") for name in each.deb.paths):
                activated.add(path)
    return activated
