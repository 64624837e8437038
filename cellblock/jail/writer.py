"""Writes a tree: many threads, one pass over the content, metadata exactly as in the entries.

The target is a new folder of root's that nobody else can enter, so paths below it are safe to use: each
directory on them was made here. Order: directories (still private), then files side by side, then hard
links, then the directories' own owners, modes and times from the innermost out, because writing into a
directory changes its time.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import queue
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

from cellblock.errors import CellblockError
from cellblock.jail.archive import Content
from cellblock.jail.entry import Entry, shown
from cellblock.jail.source import Opened

_CHUNK = 256 << 10
_FICLONE = 0x40049409
_WORTH_CLONING = 64 << 10
"""Smaller files are copied faster than the filesystem shares their blocks."""

_PROGRESS_EVERY_S = 0.1

Ranges = list[tuple[int, int]]


class TreeWriter:
    """Writes entries into `root`, an empty directory. Digests of contents come back in `digests`."""

    def __init__(self, root: Path, opened: Opened, jobs: int, progress: Callable[[int], None]) -> None:
        """`progress` is called with the bytes written so far, at most ten times a second."""
        self.digests: dict[bytes, str] = {}
        self._root = os.fsencode(root)
        self._opened = opened
        self._jobs = jobs
        self._progress = progress
        self._written = 0
        self._lock = threading.Lock()
        self._clones = True
        self._local = threading.local()

    def write(self) -> None:
        """Write everything. Raises CellblockError or OSError; what was written until then stays."""
        entries = self._opened.entries
        folders = [entry for entry in entries if entry.kind == "d"]
        for folder in folders:
            if folder.path:
                os.mkdir(self._at(folder), 0o700)  # noqa: PTH102 - pathlib knows no paths of bytes
        with _Pool(self._jobs, self._tick) as pool:
            for job in self._work(entries):
                pool.put(job)
        for entry in entries:
            if entry.kind == "h":
                os.link(self._root + b"/" + entry.target, self._at(entry), follow_symlinks=False)
        for folder in reversed(folders):
            _set_metadata(self._at(folder), folder)
        self._progress(self._written)

    def _tick(self) -> None:
        self._progress(self._written)

    def _at(self, entry: Entry) -> bytes:
        return self._root + b"/" + entry.path

    def _work(self, entries: list[Entry]) -> Iterator[Callable[[], None]]:
        directory, archive = self._opened.directory, self._opened.archive
        for entry in entries:
            if entry.kind in "lpcb":
                yield _bound(self._make_special, entry)
            elif entry.kind == "f" and directory is not None:
                yield _bound(self._copy, entry, directory + b"/" + entry.path)
        if archive is not None:
            files = {entry.path: entry for entry in entries if entry.kind == "f"}
            for content in archive.contents():
                if content.size <= _CHUNK and content.data is None:
                    yield _bound(self._write_bytes, files[content.path], content.stream.read(content.size))
                else:
                    # Read from the one stream by the one reader of it; the pool writes the small files.
                    self._write_stream(files[content.path], content)

    def _make_special(self, entry: Entry) -> None:
        path = self._at(entry)
        if entry.kind == "l":
            os.symlink(entry.target, path)  # noqa: PTH211
        elif entry.kind == "p":
            os.mkfifo(path, 0o600)
        else:
            kind = stat.S_IFCHR if entry.kind == "c" else stat.S_IFBLK
            os.mknod(path, kind | 0o600, os.makedev(*entry.device))
        _set_metadata(path, entry)

    def _copy(self, entry: Entry, source: bytes) -> None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(source, flags)
        try:
            status = os.fstat(descriptor)
            if (status.st_size, status.st_mtime_ns) != (entry.size, entry.mtime_ns):
                raise _changed(entry)
            if status.st_blocks * 512 < status.st_size:
                ranges = list(_data_ranges(descriptor, status.st_size))
            else:
                ranges = [(0, status.st_size)]
            buffer = self._buffer()

            def read(offset: int, size: int) -> memoryview:
                return buffer[: os.preadv(descriptor, [buffer[:size]], offset)]

            self._write_ranges(entry, ranges, read, descriptor)
        finally:
            os.close(descriptor)

    def _buffer(self) -> memoryview:
        """This thread's buffer: a fresh one for each read would be mapped and cleared each time."""
        if not hasattr(self._local, "buffer"):
            self._local.buffer = memoryview(bytearray(_CHUNK))
        buffer: memoryview = self._local.buffer
        return buffer

    def _write_bytes(self, entry: Entry, content: bytes) -> None:
        view = memoryview(content)
        self._write_ranges(entry, [(0, len(content))], lambda offset, size: view[offset : offset + size])

    def _write_stream(self, entry: Entry, content: Content) -> None:
        position = 0

        def read(offset: int, size: int) -> bytes:
            nonlocal position
            while position < offset:  # a hole; the stream cannot seek
                zeros = content.stream.read(min(_CHUNK, offset - position))
                if not zeros:
                    return b""
                position += len(zeros)
            data = content.stream.read(size)
            position += len(data)
            return data

        self._write_ranges(entry, [(0, content.size)] if content.data is None else content.data, read)

    def _write_ranges(
        self,
        entry: Entry,
        ranges: Ranges,
        read: Callable[[int, int], bytes | memoryview],
        source: int | None = None,
    ) -> None:
        """Write a file's data, leaving holes between `ranges`, hash all of it, set its metadata."""
        total = hashlib.sha256()
        out = os.open(
            self._at(entry), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            cloned = source is not None and entry.size >= _WORTH_CLONING and self._clone(source, out)
            position = 0
            for start, length in ranges:
                _hash_zeros(total, start - position)
                position, end = start, start + length
                while position < end:
                    data = read(position, min(_CHUNK, end - position))
                    if not data:
                        raise _changed(entry)
                    total.update(data)
                    if not cloned:
                        _write_all(out, data, position)
                    position += len(data)
            _hash_zeros(total, entry.size - position)
            if position != entry.size:
                os.ftruncate(out, entry.size)
            _set_metadata(out, entry)
        finally:
            os.close(out)
        self.digests[entry.path] = total.hexdigest()
        with self._lock:
            self._written += entry.size

    def _clone(self, source: int, out: int) -> bool:
        """Share the source's blocks where the filesystem can (btrfs, xfs); asked until it says no."""
        if not self._clones:
            return False
        try:
            fcntl.ioctl(out, _FICLONE, source)
        except OSError:
            self._clones = False
        return self._clones


class _Pool:
    """Threads that run what is put; the first error stops the rest and is raised at the end."""

    def __init__(self, jobs: int, tick: Callable[[], None]) -> None:
        # Bounded, because a job may hold a megabyte of content.
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(maxsize=16 * jobs)
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(jobs)]
        self._error: BaseException | None = None
        self._tick = tick
        self._ticked = 0.0

    def __enter__(self) -> _Pool:
        for thread in self._threads:
            thread.start()
        return self

    def put(self, job: Callable[[], None]) -> None:
        """Hand `job` to the next free thread; raises the error of an earlier one."""
        if self._error:
            raise self._error
        self._queue.put(job)
        self._maybe_tick()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error:
            self._error = self._error or error
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            while thread.is_alive():
                thread.join(_PROGRESS_EVERY_S)
                if not error:
                    self._maybe_tick()
        if self._error and not error:
            raise self._error

    def _maybe_tick(self) -> None:
        now = time.monotonic()
        if now - self._ticked >= _PROGRESS_EVERY_S:
            self._ticked = now
            self._tick()

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            if self._error:
                continue  # keep taking, so that whoever puts never waits for room
            try:
                job()
            except BaseException as error:
                self._error = self._error or error


def _bound(function: Callable[..., None], *arguments: object) -> Callable[[], None]:
    return lambda: function(*arguments)


def _set_metadata(target: bytes | int, entry: Entry) -> None:
    """Owner, mode, attributes and time of a path (a link itself, never its target) or descriptor.

    In this order: chown(2) drops setuid and capabilities, chmod(2) edits an ACL's mask.
    """
    follow = isinstance(target, int)
    os.chown(target, entry.uid, entry.gid, follow_symlinks=follow)
    if entry.kind != "l":
        os.chmod(target, entry.mode)  # noqa: PTH101
    for name, value in entry.xattrs:
        try:
            os.setxattr(target, name, value, follow_symlinks=follow)
        except OSError as error:
            if error.errno in (errno.ENOTSUP, errno.EPERM, errno.E2BIG):
                text = name.decode(errors="replace")
                raise CellblockError(
                    f"the volume's filesystem cannot hold the attribute {text} of {shown(entry.path)}: "
                    f"{error.strerror}",
                    hint="use a filesystem with extended attributes (ext4, xfs, btrfs; NFS from 4.2 on)",
                ) from None
            raise
    os.utime(target, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=follow)


def _write_all(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def _hash_zeros(total: hashlib._Hash, length: int) -> None:
    zeros = bytes(min(length, _CHUNK))
    while length > 0:
        total.update(zeros[:length])
        length -= len(zeros)


def _data_ranges(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """(offset, length) of what is not a hole: lseek(2), SEEK_DATA and SEEK_HOLE."""
    position = 0
    while position < size:
        try:
            start = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        position = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, position - start


def _changed(entry: Entry) -> CellblockError:
    return CellblockError(
        f"{shown(entry.path)} changed in the source while it was read; nothing was assembled",
        hint="run this again when nobody writes to the source",
    )


def with_digests(entries: list[Entry], digests: dict[bytes, str]) -> Iterator[Entry]:
    """`entries` as they were written: regular files with the digest of their content."""
    for entry in entries:
        yield entry._replace(digest=digests[entry.path]) if entry.kind == "f" else entry
