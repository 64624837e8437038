# SPDX-License-Identifier: Apache-2.0
"""Keeps every deb once under the name of its SHA-256, and fetches missing ones, from mirror after mirror.

A deb with a wrong SHA-256 is refused, and the next mirror tried. transfer.py reads the bytes from a mirror.

    FOLDER/sha256/ab/abcd....deb       complete and verified; never changed, so that links to it stay right
    FOLDER/sha256/ab/abcd....part      being fetched; its flock(2) says by whom
    FOLDER/sha256/ab/abcd....control   control fields of the deb, cached (`cellblock.packages.repository`)
    FOLDER/sha256/ab/abcd....opened    the deb taken apart, with `.files` (`cellblock.packages.unpacked_deb`)
    FOLDER/lock                        held shared while debs are used, exclusively while some are removed

A deb gets its name by rename(2) after its hash was found right: a killed process leaves a correct store. The
next process resumes a `.part`, whose lock the kernel has released. No deb is fetched twice at a time.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from cellblock.debian.deb_file import DAMAGE
from cellblock.errors import CellblockError
from cellblock.events import Events, Progress
from cellblock.files.flock import locked, take
from cellblock.lock.archives import PackageArchive
from cellblock.lock.model import LockedPackage
from cellblock.packages.transfer import Broken, Missing, Refused, Shorter, Transfers
from cellblock.packages.unpacked_deb import UnpackedDeb, Unpacker
from cellblock.process import Interrupted
from cellblock.retries import count_anew, retrying

SUBJECT = "packages"
"""Under this name fetching appears among the events."""

# Connections at once: enough to hide a mirror's latency, and fewer than what mirrors refuse.
_THREADS = 8
# Attempts in a row at a mirror that fails.
_ATTEMPTS = 5
# Characters that stand for themselves in the path of a URL (RFC 3986, 3.3).
_IN_PATHS = "/:@!$&'()*+,;=~"
# Bytes gained by an attempt that broke off: with as many it counts as the first.
_WORTH_IT = 1 << 16
# Names of packages in one error message.
_NAMED = 5


class FetchFailed(CellblockError):
    """Packages could not be fetched; the message names each, its mirrors, and why."""


class PackagesGone(FetchFailed):
    """No mirror has these versions any more: the archive has moved on."""


@dataclass(frozen=True)
class _Failure:
    package: LockedPackage
    tried: tuple[tuple[str, str], ...]  # URL, why
    missing: bool


class PackageStore:
    """The store in `folder`; nothing is made until something is fetched.

    With an `unpacker` debs are taken apart as they are fetched: the network is slower than a processor.
    """

    def __init__(self, folder: Path, unpacker: Unpacker | None = None) -> None:
        self.folder = folder
        self._unpacker = unpacker

    def path(self, package: LockedPackage) -> Path:
        """Where the deb of `package` is once it has been fetched."""
        return self.folder / "sha256" / package.sha256[:2] / f"{package.sha256}.deb"

    def has(self, package: LockedPackage) -> bool:
        """Whether the deb of `package` is here."""
        try:
            # Sizes are compared because a power failure can leave a renamed file without its data.
            return self.path(package).stat().st_size == package.size
        except FileNotFoundError:
            return False

    def unpacked(self, packages: Sequence[LockedPackage], folder: Path) -> list[tuple[UnpackedDeb, Path]]:
        """Each of `packages`, fetched before, taken apart, and its files linked into `folder`.

        Call it while the store is held. Raises CellblockError for what is no deb.
        """
        assert self._unpacker
        unpacker = self._unpacker

        def one(package: LockedPackage) -> tuple[UnpackedDeb, Path]:
            deb = self.path(package)
            try:
                unpacked = unpacker.unpack(deb)
                files = folder / f"{package.deb}.files"
                link(deb.with_suffix(".files"), files)
            except DAMAGE as error:
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise _full(self.folder) from error
                raise CellblockError(
                    f"{deb}: {package.name} {package.version} cannot be unpacked: {error}",
                    hint="`build.py cache check` finds debs that the disk has damaged",
                ) from error
            return unpacked, files

        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            return list(pool.map(one, packages))

    def take_apart(self, package: LockedPackage) -> None:
        """Have the deb of `package` taken apart, if it can be: whoever uses it says what is wrong with it."""
        if self._unpacker:
            with suppress(*DAMAGE):
                self._unpacker.unpack(self.path(package))

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Nothing is removed from the store while the context lasts; any number of processes hold it."""
        with locked(self.folder / "lock", shared=True):
            yield

    def fetch(
        self,
        packages: Iterable[LockedPackage],
        archives: Sequence[PackageArchive],
        events: Events,
        stopped: threading.Event | None = None,
    ) -> None:
        """Have the debs of all `packages` here, each verified; `archives` are the lock's.

        Those that cannot be had do not keep the others from being fetched. Raises FetchFailed naming
        them, CellblockError when the disk is full, Interrupted on Ctrl-C or when `stopped` is set; the
        next call goes on from there.
        """
        with self.hold():
            wanted = {package.sha256: package for package in packages}
            absent = [package for package in wanted.values() if not self.has(package)]
            for sha256 in wanted.keys() - {package.sha256 for package in absent}:
                self._used(self.path(wanted[sha256]))
            if absent:
                with events.step(SUBJECT, f"fetch {len(absent)} package{'s' if len(absent) > 1 else ''}"):
                    self._check_space(absent)
                    _Fetch(self, archives, events, absent, stopped).run()

    def _used(self, path: Path) -> None:
        """Note that a deb was used now: the least recently used are the first to be trimmed."""
        with suppress(OSError):
            os.utime(path)

    def _check_space(self, absent: Sequence[LockedPackage]) -> None:
        need = sum(package.size for package in absent)
        free = shutil.disk_usage(self.folder).free
        if need > free:
            raise CellblockError(
                f"{self.folder}: {len(absent)} packages need {need >> 20} MiB, and {free >> 20} MiB are free",
                hint="free disk space (`build.py cache trim`), or set CELLBLOCK_CACHE to another folder",
            )


class _Fetch:
    """One call of `fetch`."""

    def __init__(
        self,
        store: PackageStore,
        archives: Sequence[PackageArchive],
        events: Events,
        packages: Sequence[LockedPackage],
        stopped: threading.Event | None,
    ) -> None:
        self._store = store
        self._archives = archives
        self._events = events
        self._packages = packages
        self._total = sum(package.size for package in packages)
        self._done = 0
        self._lock = threading.Lock()
        self._stopped = stopped or threading.Event()
        self._transfers = Transfers(_THREADS, self._stopped)
        # Mirrors that never answered, and how they failed: hundreds of packages would each wait for them.
        self._dead: dict[str, str] = {}

    def run(self) -> None:
        failures: list[_Failure] = []
        with ThreadPoolExecutor(max_workers=_THREADS) as pool:
            try:
                # Large ones first: the last to end should be short.
                ordered = sorted(self._packages, key=lambda package: -package.size)
                for future in as_completed([pool.submit(self._fetch, package) for package in ordered]):
                    failure = future.result()
                    if failure:
                        failures.append(failure)
            except BaseException as error:
                self._stopped.set()
                self._transfers.stop()
                pool.shutdown(cancel_futures=True)
                if isinstance(error, KeyboardInterrupt):
                    raise Interrupted(
                        "interrupted: packages fetched so far are kept", hint="run this again to go on"
                    ) from error
                if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise _full(self._store.folder) from error
                raise
            finally:
                self._transfers.close()
        if failures:
            raise _failed(failures)

    def _fetch(self, package: LockedPackage) -> _Failure | None:
        path = self._store.path(package)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")

        def waiting() -> None:
            self._events.info(f"another process fetches {package.name}; waiting for it")

        while not self._store.has(package):
            with part.open("ab+") as file:
                take(file, part, waiting=waiting, stopped=self._stopped)
                # Whoever held it before has renamed it, or there was none: the name is another file's now.
                if not _is(file, part):
                    continue
                if self._store.has(package):
                    part.unlink()
                    break
                return self._from_mirrors(package, file, part)
        self._progress(package.size)
        return None

    def _from_mirrors(self, package: LockedPackage, file: BinaryIO, part: Path) -> _Failure | None:
        tried: list[tuple[str, str]] = []
        missing = True
        for mirror in self._archives[package.archive].uris:
            # As apt does: a name may hold what means something else in a URL (%3a of an epoch).
            uri = f"{mirror}/{quote(package.filename, safe=_IN_PATHS)}"
            dead = self._dead.get(mirror)
            if dead:
                tried.append((uri, dead))
                missing = False
                continue
            try:
                self._from_mirror(package, uri, mirror, file)
            except Missing as error:
                tried.append((uri, str(error)))
            except (Broken, Refused) as error:
                tried.append((uri, str(error)))
                missing = False
            else:
                self._keep(package, file, part)
                return None
        return _Failure(package, tuple(tried), missing)

    def _keep(self, package: LockedPackage, file: BinaryIO, part: Path) -> None:
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        part.rename(self._store.path(package))
        self._store.take_apart(package)

    def _from_mirror(self, package: LockedPackage, uri: str, mirror: str, file: BinaryIO) -> None:
        """Fill `file` from `uri`. Raises Missing, Refused, or Broken after the last attempt."""
        # What is there may be of another mirror, or of a disk that was full, and not fit what comes.
        foreign = _size(file) > 0
        gave = False
        try:
            for attempt in retrying(Broken, _ATTEMPTS, sleep=self._sleep):
                before = _size(file)
                with attempt:
                    wrong = self._wrong(package, uri, file)
                    if wrong and foreign:
                        wrong = self._wrong(package, uri, file)
                    if wrong:
                        raise Refused(wrong)
                gained = _size(file) - before
                gave = gave or gained > 0
                # A mirror that goes on giving is not given up for breaking off now and then.
                if gained >= _WORTH_IT:
                    count_anew(attempt)
        except Broken as error:
            if not gave:
                self._dead[mirror] = str(error)
            raise

    def _wrong(self, package: LockedPackage, uri: str, file: BinaryIO) -> str:
        """Fetch what `file` lacks. Empties a wrong file, and returns what is wrong with it."""
        before = _size(file)
        try:
            found = self._transfer(package, uri, file)
            if found == package.sha256:
                return ""
            wrong = f"the file's SHA-256 is {found}, expected {package.sha256}"
        except Shorter:
            wrong = f"the file has {before} bytes or fewer, expected {package.size}"
        self._progress(-_size(file))
        file.truncate(0)
        return wrong

    def _sleep(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise Interrupted("stopped")

    def _transfer(self, package: LockedPackage, uri: str, file: BinaryIO) -> str:
        """Fetch what `file` lacks; the SHA-256 of all of it."""
        have = _size(file)
        if have > package.size:
            file.truncate(0)
            have = 0
        digest = hashlib.sha256()
        file.seek(0)
        while chunk := file.read(1 << 20):
            digest.update(chunk)
        if have == package.size:
            return digest.hexdigest()
        with self._transfers.read(uri, have) as (begins, chunks):
            if begins != have:
                self._progress(-have)
                file.truncate(0)
                digest = hashlib.sha256()
                have = 0
            for chunk in chunks:
                digest.update(chunk)
                file.write(chunk)
                have += len(chunk)
                self._progress(len(chunk))
                if have > package.size:
                    break
        file.flush()
        if have < package.size:
            raise Broken(f"the connection ended after {have} of {package.size} bytes")
        return digest.hexdigest()

    def _progress(self, count: int) -> None:
        with self._lock:
            self._done += count
            done = self._done
        self._events.emit(Progress(SUBJECT, max(done, 0), self._total))


def _size(file: BinaryIO) -> int:
    return file.seek(0, os.SEEK_END)


def _is(file: BinaryIO, path: Path) -> bool:
    """Whether an open file is what `path` names."""
    try:
        return os.fstat(file.fileno()).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _full(folder: Path) -> CellblockError:
    free = shutil.disk_usage(folder).free
    return CellblockError(
        f"{folder}: no space left on the disk ({free >> 20} MiB free); packages fetched so far are kept",
        hint="free disk space (`build.py cache trim`) or set CELLBLOCK_CACHE, then run this again",
    )


def _failed(failures: Sequence[_Failure]) -> FetchFailed:
    lines = []
    for failure in sorted(failures, key=lambda failure: failure.package.name)[:_NAMED]:
        package = failure.package
        said = "the mirror no longer has" if failure.missing else "cannot fetch"
        lines.append(f"{said} {package.name} {package.version}")
        lines += [f"  | {uri}: {why}" for uri, why in failure.tried]
    if len(failures) > _NAMED:
        lines.append(f"and {len(failures) - _NAMED} more packages")
    if any(failure.missing for failure in failures):
        hint = (
            "`python3 build.py lock` takes the versions that the archive has now; "
            "--mirror with a --snapshot has older ones"
        )
    else:
        hint = "check the mirror, or name another with --mirror; what was fetched is kept"
    gone = all(failure.missing for failure in failures)
    return (PackagesGone if gone else FetchFailed)("\n".join(lines), hint=hint)


def link(deb: Path, to: Path) -> None:
    """Have a file of the store at `to`, by a hard link where that can be."""
    try:
        to.hardlink_to(deb)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EMLINK, errno.EPERM):
            raise
        # Another file system: its own copy, since a symlink would not lead out of a root.
        with suppress(FileNotFoundError):
            to.unlink()
        shutil.copyfile(deb, to)
