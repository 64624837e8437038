# SPDX-License-Identifier: Apache-2.0
"""Allows one writer per volume, among processes and among hosts; a dead writer blocks others only briefly.

A writer holds two things. The first is a lock of fcntl(2) on the file `lock`: the kernel releases it
however a process ends, and it works over NFS unless that is mounted with `nolock`. The second is a record
in the file `writer`, made with link(2), which is atomic everywhere: who writes, since when, and a heartbeat
that the writer renews. A record is taken over only if its writer is known to be dead (same boot of the same
kernel, and no such process), or if its heartbeat stood still for LEASE_S by the clock of the host that
watches, so clocks need not agree. A record that cannot be read has no heartbeat: a power cut may leave it
empty, because heartbeats are not flushed, which could take longer than the lease while the volume is being
filled. Taking over is itself a link(2) to a name made of the old record's token, so only one host can.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from cellblock.errors import CellblockError
from cellblock.files import durable

LEASE_S = 30.0
"""A host that cannot write for this long over NFS counts as dead; its writer gives up before: see BEAT_S."""
BEAT_S = 3.0
_POLL_S = 0.2
_UNREADABLE = "unreadable"
_CRUMB_S = 3600.0
"""Nobody takes an hour from writing its name to becoming the holder."""


@dataclass(frozen=True)
class Holder:
    """Who holds, or held, a volume. `start` is the process's start in clock ticks since boot."""

    token: str
    what: str
    host: str
    boot: str
    namespace: int
    pid: int
    start: int
    since: str
    beat: int = 0

    def __str__(self) -> str:
        """For a message."""
        if self.token == _UNREADABLE:
            return "a writer that left no record of itself"
        return f"`{self.what}` (process {self.pid} on {self.host}, since {self.since})"


class BusyError(CellblockError):
    """Another writer is at work; nothing was changed, and the same may succeed later."""


class LostLockError(CellblockError):
    """Another writer took the volume over, because ours seemed dead to it."""


def myself(what: str) -> Holder:
    """This process as a holder."""
    return Holder(
        token=secrets.token_hex(16),
        what=what,
        host=socket.gethostname(),
        boot=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        namespace=Path("/proc/self/ns/pid").stat().st_ino,
        pid=os.getpid(),
        start=_start_of(os.getpid()) or 0,
        since=time.strftime("%Y-%m-%d %H:%M:%S", time.localtime()),
    )


def _now() -> float:
    """Seconds, those included in which this machine was asleep: others' clocks went on."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _start_of(pid: int) -> int | None:
    """When a process started; None when there is none: proc(5), field 22 of stat."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _publish(mine: Path, target: Path) -> None:
    """Give a finished record its name. Raises FileExistsError when there is one: only one can.

    Where there are no hard links (some FUSE), the name is made first, which is as exclusive, and filled then.
    """
    try:
        os.link(mine, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        with target.open("x", encoding="utf-8") as file:
            file.write(mine.read_text(encoding="utf-8"))
            file.flush()
            os.fsync(file.fileno())


class WriterLock:
    """The lock in the folder `private` of a volume. `me` is another only in tests of several hosts."""

    def __init__(self, private: Path, volume: Path, me: Holder, lease_s: float = LEASE_S) -> None:
        self._private = private
        self._volume = volume
        self._me = me
        self._lease_s = lease_s
        self._lost = threading.Event()
        self._stop = threading.Event()
        self._written = _now()

    def holder(self) -> Holder | None:
        """Read who holds the volume; None when nobody does. Writes nothing."""
        return self._effective()

    def is_alive(self, holder: Holder) -> bool | None:
        """Whether a holder of this host and PID namespace lives; None for one that is not seen from here."""
        if holder.boot != self._me.boot or holder.namespace != self._me.namespace:
            return None
        return _start_of(holder.pid) == holder.start

    @contextlib.contextmanager
    def held(self, notice: Callable[[str], None] = lambda text: None) -> Iterator[Callable[[], None]]:
        """Hold the lock; yields a function that raises LostLockError when it was lost meanwhile.

        So does this when the block fails after that: who takes over removes what the block works in.
        Raises BusyError naming who holds it. `notice` is told when this waits for a silent host.
        """
        descriptor = os.open(self._private / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._lock_file(descriptor)
            try:
                self._take_record(notice)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                raise CellblockError(
                    f"{self._volume} is full; the tree was not changed: the writer's record has no room",
                    hint="free some space or use a larger volume, then run this again",
                ) from error
            self._written = _now()
            self._sweep()
            beating = threading.Thread(target=self._beat, daemon=True)
            beating.start()
            try:
                yield self.check
            except LostLockError:
                raise
            except Exception as error:
                if self._is_of_another():
                    raise self._loss() from error
                raise
            finally:
                self._stop.set()
                beating.join()
                self._release()
        finally:
            os.close(descriptor)

    def check(self) -> None:
        """Raise LostLockError when somebody else has the volume now."""
        if not self._lost.is_set() and not self._silent():
            return
        raise self._loss()

    def _loss(self) -> LostLockError:
        """Make the error that says how the lock was lost."""
        holder = self._read("writer")
        if holder and holder.token == self._me.token:
            why = "it had not written to it for too long, so that another may begin"
        elif holder:
            why = f"it was taken over by {holder}, as this host had not written to it for too long"
        else:
            why = (
                "it was taken over by another writer, which has finished, as this host had not written to it "
                f"for too long; or somebody removed {self._private / 'writer'}"
            )
        return LostLockError(
            f"this process no longer holds {self._volume}: {why}",
            hint="run the same command again: it finishes what is left",
        )

    def _is_of_another(self) -> bool:
        """Whether the record is not ours any more, as far as can be told."""
        try:
            holder = self._read("writer")
        except OSError:
            return False
        return holder is None or holder.token not in (self._me.token, _UNREADABLE)

    def _silent(self) -> bool:
        """Whether our beat stood still for so long that others may soon think us dead."""
        return _now() - self._written > self._lease_s / 2

    def _lock_file(self, descriptor: int) -> None:
        for wait in (*[0.02] * 50, None):
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except (BlockingIOError, PermissionError):
                # Its holder writes the record just after it has the lock, and removes it just before it
                # lets go: no record is one of these two moments, and is over at once.
                holder = self._effective()
                if holder is not None or wait is None:
                    raise self._busy(holder) from None
                time.sleep(wait)

    def _busy(self, holder: Holder | None) -> BusyError:
        return BusyError(
            f"{self._volume} is being written by {holder or 'another process'}; nothing was changed",
            hint="wait until it is done, then run this again",
        )

    def _take_record(self, notice: Callable[[str], None]) -> None:
        mine = self._private / f"writer-{self._me.token}"
        try:
            durable.put(mine, json.dumps(asdict(self._me)))
            while True:
                try:
                    _publish(mine, self._private / "writer")
                    return
                except FileExistsError:
                    pass
                holder = self._effective()
                if holder is None:
                    continue  # released in this very moment
                verdict = self._judge(holder, notice)
                if verdict == "alive":
                    raise self._busy(holder)
                if verdict == "dead" and self._take_over(mine, holder):
                    return
        finally:
            mine.unlink(missing_ok=True)

    def _take_over(self, mine: Path, dead: Holder) -> bool:
        """Replace the record of a dead holder; False when another was faster."""
        claim = self._private / f"writer-after-{dead.token}"
        try:
            _publish(mine, claim)
        except FileExistsError:
            return False
        # The name was free: either nobody took over yet, or somebody did and has cleaned up since. In the
        # latter case the record is not that of the dead holder (or of one that died taking it over).
        effective = self._effective(without=claim.name)
        if effective is None or effective.token != dead.token:
            claim.unlink(missing_ok=True)
            return False
        temporary = self._private / f"writer-new-{self._me.token}"
        _publish(mine, temporary)
        temporary.replace(self._private / "writer")
        return True

    def _sweep(self) -> None:
        """Remove what killed writers left; who holds the volume may. Files of the living stay."""
        for path in self._private.glob("writer-*"):
            if path.name == f"writer-beat-{self._me.token}":
                continue
            with contextlib.suppress(FileNotFoundError):
                if path.name.startswith("writer-after-") or self._is_crumb(path):
                    path.unlink(missing_ok=True)

    def _is_crumb(self, path: Path) -> bool:
        if time.time() - path.stat().st_mtime > _CRUMB_S:
            return True
        holder = self._read(path.name)
        here = (self._me.boot, self._me.namespace)
        return (
            holder is not None
            and (holder.boot, holder.namespace) == here
            and _start_of(holder.pid) != holder.start
        )

    def _effective(self, without: str = "") -> Holder | None:
        """Return the holder: of the record, or a host that is about to take it over from a dead one."""
        holder = self._read("writer")
        while holder is not None:
            name = f"writer-after-{holder.token}"
            following = None if name == without else self._read(name)
            if following is None or following.token == holder.token:
                return holder
            holder = following
        return None

    def _read(self, name: str) -> Holder | None:
        # Opened anew each time: NFS asks the server for the file's state when a file is opened.
        for _ in range(5):
            try:
                return Holder(**json.loads((self._private / name).read_text(encoding="utf-8")))
            except FileNotFoundError:
                return None
            except (ValueError, TypeError):
                time.sleep(0.02)  # being written
        return Holder(_UNREADABLE, "", "", "", 0, 0, 0, "")

    def _judge(self, holder: Holder, notice: Callable[[str], None]) -> Literal["alive", "dead", "gone"]:
        """Judge whether the holder is alive; waits up to the lease for a holder on another host."""
        alive = self.is_alive(holder)
        if alive is not None:
            return "alive" if alive else "dead"
        notice(f"{holder} is silent; waiting up to {self._lease_s:.0f} s for a sign of life")
        deadline = time.monotonic() + self._lease_s
        while time.monotonic() < deadline:
            time.sleep(min(_POLL_S, self._lease_s / 10))
            now = self._effective()
            if now is None or now.token != holder.token:
                return "gone"
            if now.beat != holder.beat:
                return "alive"
        return "dead"

    def _beat(self) -> None:
        beat = 0
        while not self._stop.wait(min(BEAT_S, self._lease_s / 10)):
            try:
                current = self._read("writer")
                if current is None or current.token != self._me.token:
                    self._lost.set()
                    return
                beat += 1
                temporary = self._private / f"writer-beat-{self._me.token}"
                temporary.write_text(json.dumps(asdict(replace(self._me, beat=beat))), encoding="utf-8")
                # Another could take over between the look above and this rename only after a silence of
                # the whole lease, which is checked right here.
                if self._silent():
                    temporary.unlink()
                    self._lost.set()
                    return
                temporary.replace(self._private / "writer")
                self._written = _now()
            except OSError:
                if self._silent():
                    self._lost.set()
                    return

    def _release(self) -> None:
        current = self._read("writer")
        if current is not None and current.token == self._me.token:
            (self._private / "writer").unlink(missing_ok=True)
        (self._private / f"writer-beat-{self._me.token}").unlink(missing_ok=True)
