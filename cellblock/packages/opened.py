"""Debs taken apart: the files a package puts into a root, ready for tar, and what dpkg's database says of it.

    abcd....deb            as fetched (`cellblock.packages.store`)
    abcd....files          its files as tar, without those that images leave out, compressed for speed
    abcd....opened         JSON: an OpenedDeb; there only when `.files` is

A deb is decompressed when it is fetched, while the network is waited for, and never again: decompressing
took a third of a build's processor time. Both files follow from the deb and are made again when they are gone.
"""

from __future__ import annotations

import fnmatch
import io
import json
import os
import re
import secrets
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, NamedTuple, cast

from cellblock.key import digest_of
from cellblock.packages import deb_file

# Changes when the same deb is taken apart otherwise than before.
_FORM = 2
# As fast as it is read: it is written once and read from the page cache many times.
_LEVEL = 1
_BUFFER = 1 << 20
_BLOCK = 512
_INFO = "./var/lib/dpkg/info"
# Of control.tar, what is no file of dpkg's database.
_NOT_INFO = ("control",)
_SCRIPTS = ("preinst", "postinst", "prerm", "postrm", "config")


class Folder(NamedTuple):
    """A folder that a package brings: absolute path, mode, owner and group by number, time in seconds."""

    path: str
    mode: int
    uid: int
    gid: int
    mtime: int


@dataclass(frozen=True)
class OpenedDeb:
    """A deb, taken apart.

    `control` is its stanza, ending in a newline. `paths` are the absolute paths of all that it puts into a root
    but folders, of which `links` are the symbolic links. `activates` are the triggers that unpacking it activates
    (deb-triggers(5)). `by_dpkg` says why only dpkg itself can unpack it; empty when its files can be laid
    down and its database entries written. `form` changes with how debs are taken apart.
    """

    form: str
    control: str
    paths: tuple[str, ...]
    folders: tuple[Folder, ...]
    links: tuple[str, ...]
    activates: tuple[str, ...]
    pre_depends: tuple[str, ...]
    by_dpkg: str


class Opener:
    """Takes debs apart. `excludes` are dpkg's options (`path-exclude=GLOB`, `path-include=GLOB`), in order."""

    def __init__(self, excludes: Sequence[str]) -> None:
        self._filter = _Filter(excludes)
        self._form = digest_of([_FORM, list(excludes)])

    def read(self, deb: Path) -> OpenedDeb | None:
        """What is known of a deb that was taken apart; None when it was not, or in another form."""
        try:
            fields = json.loads(deb.with_suffix(".opened").read_bytes())
            if fields["form"] != self._form or not deb.with_suffix(".files").exists():
                return None
            fields["folders"] = [Folder(*folder) for folder in fields["folders"]]
            return OpenedDeb(**{name: _frozen(value) for name, value in fields.items()})  # type: ignore[arg-type]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def open(self, deb: Path) -> OpenedDeb:
        """What is known of a deb, which is taken apart if need be.

        Raises one of `deb_file.DAMAGE` when it is no deb, OSError when the disk is full.
        """
        opened = self.read(deb)
        if opened is None:
            opened = self._take_apart(deb)
        return opened

    def _take_apart(self, deb: Path) -> OpenedDeb:
        import zstandard

        mark = f"-{os.getpid()}-{secrets.token_hex(4)}"
        files, described = deb.with_suffix(f".files{mark}"), deb.with_suffix(f".opened{mark}")
        info = _read_control(deb)
        try:
            with files.open("wb") as file:
                # With a checksum: a damaged disk is found when it is read.
                compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
                with compressor.stream_writer(file) as writer:
                    opened = self._write(deb, info, cast("IO[bytes]", writer))
            described.write_text(json.dumps(asdict(opened), separators=(",", ":")), encoding="utf-8")
            files.rename(deb.with_suffix(".files"))
            described.rename(deb.with_suffix(".opened"))
        finally:
            for path in (files, described):
                path.unlink(missing_ok=True)
        return opened

    def _write(
        self, deb: Path, info: Mapping[str, tuple[tarfile.TarInfo, bytes]], to: IO[bytes]
    ) -> OpenedDeb:
        paths: list[str] = []
        folders: list[Folder] = []
        links: list[str] = []
        listed: list[str] = []
        odd = ""
        with deb_file.member(deb, "data") as data:
            for entry in _entries(data):
                path = _path(entry.name, deb)
                listed.append(path or "/.")
                # The root itself is there, with the mode that it has.
                if not path or self._filter.skips(path, entry):
                    continue
                if entry.isdir():
                    mtime = int(entry.mtime)
                    folders.append(Folder(path, entry.mode & 0o7777, entry.uid, entry.gid, mtime))
                    continue
                paths.append(path)
                if entry.issym():
                    links.append(path)
                if not (entry.isreg() or entry.issym() or entry.islnk()):
                    odd = "it has device nodes"
                _add(to, entry, data.extractfile(entry) if entry.isreg() else None)
        control = info["control"][1].decode("utf-8", "surrogateescape").strip("\n") + "\n"
        by_dpkg = odd or _why_dpkg(info)
        if not by_dpkg:
            self._write_info(control, info, listed, to)
        return OpenedDeb(
            form=self._form,
            control=control,
            paths=tuple(paths),
            folders=tuple(folders),
            links=tuple(links),
            activates=tuple(_triggers(info, "activate")),
            pre_depends=tuple(_pre_depends(control)),
            by_dpkg=by_dpkg,
        )

    def _write_info(
        self,
        control: str,
        info: Mapping[str, tuple[tarfile.TarInfo, bytes]],
        listed: Sequence[str],
        to: IO[bytes],
    ) -> None:
        """The files of dpkg's database, under the names that dpkg gives them (format 1, dpkg 1.16.2)."""
        name = _field(control, "Package")
        if _field(control, "Multi-Arch") == "same":
            name += f":{_field(control, 'Architecture')}"
        text = "".join(f"{path}\n" for path in listed).encode("utf-8", "surrogateescape")
        lists = tarfile.TarInfo()
        lists.mtime = info["control"][0].mtime
        contents = {"list": (lists, text), **info}
        for kind, (entry, data) in sorted(contents.items()):
            if kind in _NOT_INFO:
                continue
            ours = tarfile.TarInfo(f"{_INFO}/{name}.{kind}")
            ours.mode = 0o755 if kind in _SCRIPTS else 0o644
            ours.mtime, ours.size = entry.mtime, len(data)
            _add(to, ours, io.BytesIO(data))


class _Filter:
    """dpkg's path-exclude and path-include (dpkg(1)): the last pattern that fits decides."""

    def __init__(self, options: Sequence[str]) -> None:
        split = [option.partition("=") for option in options]
        self._rules = [
            (kind == "path-include", re.compile(fnmatch.translate(glob))) for kind, _, glob in split
        ]
        # What comes before the first wildcard: folders that lead there stay.
        self._kept = [
            re.split(r"[*?\[\\]", glob)[0].rstrip("/") for kind, _, glob in split if kind == "path-include"
        ]

    def skips(self, path: str, entry: tarfile.TarInfo) -> bool:
        skip = False
        for include, pattern in self._rules:
            if pattern.match(path):
                skip = not include
        if skip and (entry.isdir() or entry.issym()):
            return not any(path.startswith(kept) for kept in self._kept)
        return skip


def _entries(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (entry := archive.next()) is not None:
        yield entry
        archive.members = []  # type: ignore[attr-defined] # or it keeps a record of each


def _path(name: str, deb: Path) -> str:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or name.startswith("/"):
        raise ValueError(f"{deb}: the name '{name}' leads out of the root")
    return "/" + "/".join(parts) if parts else ""


def _add(to: IO[bytes], entry: tarfile.TarInfo, content: IO[bytes] | None) -> None:
    # By number: names of users mean something else on this machine.
    entry.uname = entry.gname = ""
    to.write(entry.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape"))
    if content is not None:
        while chunk := content.read(_BUFFER):
            to.write(chunk)
        to.write(b"\0" * (-entry.size % _BLOCK))


def _read_control(deb: Path) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    info = {}
    with deb_file.member(deb, "control") as control:
        for entry in _entries(control):
            if entry.isreg():
                file = control.extractfile(entry)
                assert file
                info[_path(entry.name, deb).lstrip("/")] = (entry, file.read())
    if "control" not in info:
        raise ValueError(f"{deb}: no deb: it has no control file")
    return info


def _why_dpkg(info: Mapping[str, tuple[tarfile.TarInfo, bytes]]) -> str:
    """Why its files and its database entries do not do."""
    if "preinst" in info:
        return "it has a script that runs before it is unpacked"
    if "conffiles" in info:
        return "it has conffiles"
    if any(_triggers(info, "interest")):
        return "it waits for triggers"
    if "md5sums" not in info:
        return "it has no sums, and dpkg makes them"
    return ""


def _triggers(info: Mapping[str, tuple[tarfile.TarInfo, bytes]], kind: str) -> Iterator[str]:
    if "triggers" in info:
        for line in info["triggers"][1].decode("utf-8", "replace").splitlines():
            words = line.split("#")[0].split()
            if len(words) == 2 and re.fullmatch(f"{kind}(-await|-noawait)?", words[0]):
                yield words[1]


def _pre_depends(control: str) -> Iterator[str]:
    for part in re.split(r"[,|]", _field(control, "Pre-Depends")):
        with suppress(IndexError):
            yield part.split()[0].partition(":")[0]


def _field(control: str, name: str) -> str:
    found = re.search(rf"^{name}:(.*(?:\n[ \t].*)*)", control, re.MULTILINE | re.IGNORECASE)
    return found.group(1).strip() if found else ""


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
