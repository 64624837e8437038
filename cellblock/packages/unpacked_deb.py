# SPDX-License-Identifier: Apache-2.0
"""Takes a fetched deb apart once: its files become a part of a tar, its records for dpkg become JSON.

    abcd....deb            as fetched (`cellblock.packages.store`)
    abcd....files          its files as entries of a tar, without those that images leave out: one zstd frame
    abcd....opened         JSON: an UnpackedDeb; only there when `.files` is

A deb is decompressed once, while others are fetched over the network: decompressing took a third of a
build's processor time. A layer's blob is put together from the frames of debs that no script changed
(`cellblock.oci.layer`). Both files follow from the deb and are made again when they are gone.
"""

from __future__ import annotations

import fnmatch
import hashlib
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

from cellblock.cache_key import digest_of
from cellblock.debian import deb_file

# Changes when the same deb is taken apart otherwise than before.
_FORM = 3
# Layers are made of these frames, which are made once: more than the 3 of what a build compresses itself. 9
# takes as long again for 4 % less, and a machine that builds once waits for it (docs/benchmarks.md).
_LEVEL = 6
_BUFFER = 1 << 20
_BLOCK = 512
_INFO = "/var/lib/dpkg/info"
# Of control.tar, what is no file of dpkg's database.
_NOT_INFO = ("control",)
_Info = Mapping[str, tuple[tarfile.TarInfo, bytes]]
_SCRIPTS = ("preinst", "postinst", "prerm", "postrm", "config")


class Folder(NamedTuple):
    """A folder that a package brings: absolute path, mode, owner and group by number, time in seconds."""

    path: str
    mode: int
    uid: int
    gid: int
    mtime: int


@dataclass(frozen=True)
class UnpackedDeb:
    """A deb, taken apart.

    `control` is its stanza, ending in a newline. `paths` are the absolute paths of all that it puts into a
    root but folders; `links` (symbolic ones) and `conffiles` are among them. `newest` is the latest time of
    an entry, in seconds. `activates` are the triggers that unpacking activates (deb-triggers(5)). `by_dpkg`
    says why only dpkg itself can unpack it; empty when its files can be laid down and its database
    entries written, of which `info` are the paths. `form` changes with how debs are taken apart.
    """

    form: str
    control: str
    paths: tuple[str, ...]
    folders: tuple[Folder, ...]
    links: tuple[str, ...]
    conffiles: tuple[str, ...]
    info: tuple[str, ...]
    newest: int
    activates: tuple[str, ...]
    pre_depends: tuple[str, ...]
    by_dpkg: str


class Unpacker:
    """Takes debs apart. `excludes` are options of dpkg, path-exclude and path-include with a pattern."""

    def __init__(self, excludes: Sequence[str]) -> None:
        self._filter = _Filter(excludes)
        self._form = digest_of([_FORM, _LEVEL, list(excludes)])

    def read(self, deb: Path) -> UnpackedDeb | None:
        """What is known of a deb that was taken apart; None when it was not, or in another form."""
        try:
            fields = json.loads(deb.with_suffix(".opened").read_bytes())
            if fields["form"] != self._form or not deb.with_suffix(".files").exists():
                return None
            fields["folders"] = [Folder(*folder) for folder in fields["folders"]]
            return UnpackedDeb(**{name: _frozen(value) for name, value in fields.items()})  # type: ignore[arg-type]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def unpack(self, deb: Path) -> UnpackedDeb:
        """What is known of a deb, which is taken apart if need be.

        Raises one of `deb_file.DAMAGE` when it is no deb, OSError when the disk is full.
        """
        opened = self.read(deb)
        if opened is None:
            opened = self._unpack(deb)
        return opened

    def _unpack(self, deb: Path) -> UnpackedDeb:
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

    def _write(self, deb: Path, info: _Info, to: IO[bytes]) -> UnpackedDeb:
        written = _Written(to)
        listed: list[str] = []
        conffiles = _conffiles(info)
        sums: dict[str, str] = {}
        with deb_file.member(deb, "data") as data:
            for entry in _entries(data):
                path = _path(entry.name, deb)
                listed.append(path or "/.")
                # The root itself is there, with the mode that it has.
                if not path or self._filter.skips(path, entry):
                    continue
                content = data.extractfile(entry) if entry.isreg() else None
                if content and path in conffiles:
                    text = content.read()
                    sums[path] = hashlib.md5(text, usedforsecurity=False).hexdigest()
                    content = io.BytesIO(text)
                written.add(path, entry, content)
        control = info["control"][1].decode("utf-8", "surrogateescape").strip("\n") + "\n"
        by_dpkg = written.odd or _why_dpkg(info, sums)
        if not by_dpkg:
            if sums:
                lines = "".join(f" {path} {sums[path]}\n" for path in conffiles)
                control += f"Conffiles:\n{lines}"
            _write_info(control, info, listed, written)
        return UnpackedDeb(
            form=self._form,
            control=control,
            paths=tuple(written.paths),
            folders=tuple(written.folders),
            links=tuple(written.links),
            conffiles=tuple(sums),
            info=tuple(written.info),
            newest=written.newest,
            activates=tuple(_triggers(info, "activate")),
            pre_depends=tuple(_pre_depends(control)),
            by_dpkg=by_dpkg,
        )


class _Written:
    """What was written to the tar `to`, and the folders that were not: they may be there already."""

    def __init__(self, to: IO[bytes]) -> None:
        self._to = to
        self.paths: list[str] = []
        self.links: list[str] = []
        self.info: list[str] = []
        self.folders: list[Folder] = []
        self.newest = 0
        self.odd = ""

    def add(self, path: str, entry: tarfile.TarInfo, content: IO[bytes] | None) -> None:
        """An entry of the deb."""
        self.newest = max(self.newest, int(entry.mtime))
        if entry.isdir():
            mode = entry.mode & 0o7777
            self.folders.append(Folder(path, mode, entry.uid, entry.gid, int(entry.mtime)))
            return
        self.paths.append(path)
        if entry.issym():
            self.links.append(path)
        if not (entry.isreg() or entry.issym() or entry.islnk()):
            self.odd = "it has device nodes"
        self._write(entry, content)

    def add_info(self, path: str, mode: int, mtime: int, data: bytes) -> None:
        """A file of dpkg's database."""
        self.info.append(path)
        self.newest = max(self.newest, mtime)
        entry = tarfile.TarInfo(f".{path}")
        entry.mode, entry.mtime, entry.size = mode, mtime, len(data)
        self._write(entry, io.BytesIO(data))

    def _write(self, entry: tarfile.TarInfo, content: IO[bytes] | None) -> None:
        # By number: names of users mean something else on this machine.
        entry.uname = entry.gname = ""
        self._to.write(entry.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape"))
        if content is not None:
            while chunk := content.read(_BUFFER):
                self._to.write(chunk)
            self._to.write(b"\0" * (-entry.size % _BLOCK))


def _write_info(control: str, info: _Info, listed: Sequence[str], to: _Written) -> None:
    """The files of dpkg's database, under the names that dpkg gives them (format 1, dpkg 1.16.2)."""
    name = _field(control, "Package")
    if _field(control, "Multi-Arch") == "same":
        name += f":{_field(control, 'Architecture')}"
    text = "".join(f"{path}\n" for path in listed).encode("utf-8", "surrogateescape")
    contents = {"list": (info["control"][0], text), **info}
    for kind, (entry, data) in sorted(contents.items()):
        if kind not in _NOT_INFO:
            mode = 0o755 if kind in _SCRIPTS else 0o644
            to.add_info(f"{_INFO}/{name}.{kind}", mode, int(entry.mtime), data)


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


def _read_control(deb: Path) -> _Info:
    info: dict[str, tuple[tarfile.TarInfo, bytes]] = {}
    with deb_file.member(deb, "control") as control:
        for entry in _entries(control):
            if entry.isreg():
                file = control.extractfile(entry)
                assert file
                info[_path(entry.name, deb).lstrip("/")] = (entry, file.read())
    if "control" not in info:
        raise ValueError(f"{deb} is not a deb: it has no control file")
    return info


def _why_dpkg(info: _Info, sums: Mapping[str, str]) -> str:
    """Why its files and its database entries do not do."""
    if "preinst" in info:
        return "it has a script that runs before it is unpacked"
    if set(_conffiles(info)) != set(sums):
        return "it has conffiles that it does not bring"
    if any(_triggers(info, "interest")):
        return "it waits for triggers"
    if "md5sums" not in info:
        return "it has no sums, and dpkg makes them"
    return ""


def _conffiles(info: _Info) -> list[str]:
    """Its conffiles (deb-conffiles(5)), in its order; one with a flag is no path that a package brings."""
    if "conffiles" not in info:
        return []
    lines = info["conffiles"][1].decode("utf-8", "surrogateescape").splitlines()
    return [line.strip() for line in lines if line.strip()]


def _triggers(info: _Info, kind: str) -> Iterator[str]:
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
