# SPDX-License-Identifier: Apache-2.0
"""Reads the system databases of a tree: dpkg's, apt's and debconf's records, alternatives, and accounts.

A merge reads and merges their content. The image's own copies are kept on the volume
(`.cellblock/controls`), because users' changes overwrite them in the tree.
"""

from __future__ import annotations

import errno
import io
import os
import re
import tarfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import zstandard

from cellblock.errors import CellblockError
from cellblock.jail.tree.access import TreeAccess
from cellblock.jail.tree.entry import shown
from cellblock.jail.tree.file_handle import UnreadableError
from cellblock.jail.tree.manifest import DAMAGED_HINT

ACCOUNTS = (b"etc/passwd", b"etc/group", b"etc/shadow", b"etc/gshadow", b"etc/subuid", b"etc/subgid")
DPKG = b"var/lib/dpkg/"
INFO = DPKG + b"info/"
STATUS = DPKG + b"status"
_LINES = (
    DPKG + b"diversions",
    DPKG + b"statoverride",
    DPKG + b"arch",
    DPKG + b"triggers/File",
    b"etc/shells",
)
_STANZAS = (
    b"var/lib/apt/extended_states",
    b"var/cache/debconf/config.dat",
    b"var/cache/debconf/templates.dat",
    b"var/cache/debconf/passwords.dat",
)
ALTERNATIVES = DPKG + b"alternatives/"
_OF_A_PACKAGE = re.compile(re.escape(INFO) + rb"[^/]+\.(list|md5sums|conffiles)")

MOST = 64 << 20
"""Bytes that a thread reads of them, which users write, into memory. Large jails have 50 MB in all."""
_FEW = 64
_SLOW_S = 0.0005
"""A file that takes longer comes from a server: local ones take a twentieth."""
_THREADS = 16

PREFIXES = (*ACCOUNTS, STATUS, *_LINES, *_STANZAS, ALTERNATIVES, INFO)
"""Prefixes of the paths of all databases, and of a few other files."""

SystemDatabases = Mapping[bytes, bytes]
"""Path -> content."""


def is_database(path: bytes) -> bool:
    """Whether the content of `path` takes part in a merge."""
    if not path.startswith((b"etc/", b"var/")):
        return False
    return (
        path in ACCOUNTS
        or path == STATUS
        or path in _LINES
        or path in _STANZAS
        or path.startswith(ALTERNATIVES)
        or _OF_A_PACKAGE.fullmatch(path) is not None
    )


def of_tree(access: TreeAccess) -> dict[bytes, bytes]:
    """Read the databases of a tree."""
    paths = [*ACCOUNTS, STATUS, *_LINES, *_STANZAS]
    paths += [ALTERNATIVES + name for name in access.names(ALTERNATIVES.rstrip(b"/"))]
    paths += [INFO + name for name in access.names(INFO.rstrip(b"/")) if _OF_A_PACKAGE.fullmatch(INFO + name)]
    started = time.perf_counter()
    found = _read(access.root, paths[:_FEW])
    rest = paths[_FEW:]
    if time.perf_counter() - started < _FEW * _SLOW_S:
        return {**found, **_read(access.root, rest)}  # threads would only wait for each other
    # A file takes a server about four round trips, and a jail has thousands.
    size = -(-len(rest) // _THREADS) or 1
    parts = [rest[start : start + size] for start in range(0, len(rest), size)]
    with ThreadPoolExecutor(max_workers=_THREADS) as threads:
        for part in threads.map(lambda part: _read(access.root, part), parts):
            found.update(part)
    return found


def _read(root: bytes, paths: list[bytes]) -> dict[bytes, bytes]:
    """The content of those of `paths` that are files. Raises CellblockError and OSError."""
    found: dict[bytes, bytes] = {}
    left = MOST
    with TreeAccess(root) as access:
        for path in paths:
            try:
                content = access.read(path, left)
            except UnreadableError as error:
                raise CellblockError(
                    f"a database of packages or accounts in the jail cannot be read: {shown(path)}: {error}; "
                    "nothing was changed",
                    hint="end the program that uses the file, or restore it from a backup, then run this",
                ) from None
            except OSError as error:
                if error.errno != errno.EFBIG:
                    raise
                raise CellblockError(
                    f"a database of packages or accounts in the jail has more than {MOST >> 20} MiB: "
                    f"{shown(path)}; nothing was changed",
                    hint="no system has that: look at the file in the jail, and restore it from a backup",
                ) from None
            if content is not None:
                found[path] = content
                left -= len(content)
    return found


def of_root(root: Path) -> dict[bytes, bytes]:
    """Read the databases of the tree at `root`."""
    with TreeAccess(os.fsencode(root)) as access:
        return of_tree(access)


class DamagedDatabasesError(CellblockError):
    """A copy of an image's databases cannot be read."""


def save(path: Path, files: SystemDatabases) -> None:
    """Write `files` to the new file `path`, a tar compressed with zstd."""
    compressor = zstandard.ZstdCompressor(level=1)
    with (
        path.open("xb") as file,
        compressor.stream_writer(file) as stream,
        tarfile.open(fileobj=stream, mode="w|", encoding="utf-8", errors="surrogateescape") as archive,
    ):
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name.decode("utf-8", "surrogateescape"))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def load(path: Path) -> dict[bytes, bytes]:
    """Read what `save` wrote. Raises FileNotFoundError, and DamagedDatabasesError."""
    found = {}
    try:
        with (
            path.open("rb") as file,
            zstandard.ZstdDecompressor().stream_reader(file) as stream,
            tarfile.open(fileobj=stream, mode="r|", encoding="utf-8", errors="surrogateescape") as archive,
        ):
            for member in archive:
                content = archive.extractfile(member)
                assert content is not None  # only files are saved
                found[member.name.encode("utf-8", "surrogateescape")] = content.read()
    except (tarfile.TarError, zstandard.ZstdError) as error:
        raise DamagedDatabasesError(f"{path} is damaged: {error}", hint=DAMAGED_HINT) from error
    return found
