# SPDX-License-Identifier: Apache-2.0
"""Runs other programs: passes their output on line by line, and ends them all when Cellblock ends.

Programs run in a session of their own, so that Ctrl-C at the terminal reaches only Cellblock, which
then ends each program's whole process group. Should Cellblock itself be killed, a watcher does so:
PR_SET_PDEATHSIG would reach buildah but not what runs in its chroot.
"""

from __future__ import annotations

import atexit
import os
import shlex
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from cellblock.errors import CellblockError

# Lines of output kept for an error message.
TAIL_LINES = 20
# Reads "+ GROUP" and "- GROUP" lines; when the pipe closes because Cellblock is gone, it ends the
# groups that were still running.
_WATCHER = """
pids=" "
while read -r op pid; do
  if [ "$op" = + ]; then pids="$pids$pid "; else pids="${pids% $pid *} ${pids#* $pid }"; fi
done
for pid in $pids; do kill -s KILL -- "-$pid"; done
"""

# A program that ignores SIGTERM for this many seconds gets SIGKILL.
_PATIENCE_S = 5.0


@dataclass(frozen=True)
class Finished:
    """How a program ended: exit status (negative: the signal that ended it) and output.

    `output` is the whole of stdout; `tail` the last lines of stdout and stderr together.
    """

    argv: tuple[str, ...]
    status: int
    output: str
    tail: tuple[str, ...]


class Interrupted(CellblockError):
    """The programs were ended because the person, or a failure elsewhere, stopped the work."""

    exit_status = 130


class ProgramFailed(CellblockError):
    """A program ended with another status than 0."""

    def __init__(self, finished: Finished, *, hint: str = "") -> None:
        lines = "".join(f"\n  | {line}" for line in finished.tail)
        super().__init__(
            f"`{shlex.join(finished.argv)}` ended with status {finished.status}{lines}", hint=hint
        )
        self.finished = finished


class _Watcher:
    """The one watcher of this process, started with the first program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Have it run: before what it is to watch, so that hardly a moment is left between the two."""
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", _WATCHER],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    start_new_session=True,
                )
                atexit.register(self._process.communicate)

    def tell(self, operation: str, group: int) -> None:
        """Say that a process group started ("+") or ended ("-"); after `start`."""
        with self._lock:
            assert self._process
            assert self._process.stdin
            self._process.stdin.write(f"{operation} {group}\n")
            self._process.stdin.flush()


_watcher = _Watcher()


class Programs:
    """Runs programs from any thread; `stop` ends those that run and refuses new ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._stopped = False

    def run(
        self,
        argv: Sequence[str],
        *,
        on_line: Callable[[str], None] | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        feed: Callable[[IO[bytes]], None] | None = None,
        keep_output: bool = True,
    ) -> Finished:
        """Run `argv` to its end, passing each line of stdout and stderr to `on_line`.

        Without `keep_output` the result's `output` stays empty: for programs that print millions of lines.
        `env` is added to the environment. `feed` writes the program's stdin, in a thread of its own; that a
        program does not read all of it is its own affair. Raises ProgramFailed when `check` and the status is
        not 0, Interrupted after `stop`, CellblockError when there is no such program, and what `feed` raises.
        """
        tail: deque[str] = deque(maxlen=TAIL_LINES)
        output: list[str] = []
        process = self._start(argv, env, subprocess.PIPE if feed else subprocess.DEVNULL)
        try:
            assert process.stdout
            assert process.stderr
            failures: list[Exception] = []
            readers = (process, failures)
            feeder = threading.Thread(target=self._feed, args=(*readers, feed))
            if feed:
                feeder.start()
            errors = threading.Thread(
                target=self._drain, args=(*readers, process.stderr, [tail.append, on_line])
            )
            errors.start()
            self._drain(
                *readers, process.stdout, [output.append if keep_output else None, tail.append, on_line]
            )
            errors.join()
            if feed:
                feeder.join()
            if failures:
                raise failures[0]
            status = process.wait()
        except BaseException:
            _end(process.pid)
            process.wait()
            raise
        finally:
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()
            with self._lock:
                self._running.discard(process.pid)
                _watcher.tell("-", process.pid)
        if self._stopped:
            raise Interrupted("stopped")
        finished = Finished(tuple(argv), status, "\n".join(output), tuple(tail))
        if check and status != 0:
            raise ProgramFailed(finished)
        return finished

    def stop(self) -> None:
        """End all running programs with their children; later `run`s raise Interrupted."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for pid in running:
            _end(pid)

    def _start(self, argv: Sequence[str], env: Mapping[str, str] | None, stdin: int) -> subprocess.Popen[str]:
        with self._lock:
            if self._stopped:
                raise Interrupted("stopped")
            _watcher.start()
            try:
                process = subprocess.Popen(
                    argv,
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    env={**os.environ, **(env or {})},
                    start_new_session=True,
                )
            except FileNotFoundError as error:
                raise CellblockError(
                    f"{argv[0]} is not installed", hint="`python3 build.py doctor` names its package"
                ) from error
            self._running.add(process.pid)
            _watcher.tell("+", process.pid)
            return process

    @staticmethod
    def _feed(
        process: subprocess.Popen[str], failures: list[Exception], feed: Callable[[IO[bytes]], None]
    ) -> None:
        assert process.stdin
        # The bytes below the text: what is fed is seldom text.
        to = process.stdin.buffer  # type: ignore[attr-defined]
        try:
            feed(to)
        except BrokenPipeError:
            pass  # it says itself why it ended
        except Exception as error:
            failures.append(error)
            _end(process.pid)
        finally:
            with suppress(BrokenPipeError):
                process.stdin.close()

    @staticmethod
    def _drain(
        process: subprocess.Popen[str],
        failures: list[Exception],
        stream: IO[str],
        consumers: Sequence[Callable[[str], None] | None],
    ) -> None:
        """Pass each line on. A consumer that fails ends the program: nobody would read its output."""
        try:
            for line in stream:
                for consumer in consumers:
                    if consumer:
                        consumer(line.rstrip("\n"))
        except Exception as error:
            failures.append(error)
            _end(process.pid)


def _end(leader: int) -> None:
    """End the process group of `leader`: SIGTERM, then SIGKILL to what is left."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(leader, sign)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline and _alive(leader):
            _reap(leader)
            time.sleep(0.02)


def _reap(leader: int) -> None:
    """Take the leader's exit status if it is our child and has ended: a zombie counts as alive.

    Popen.wait copes with a status that is gone; it then reports 0, and the caller raises Interrupted.
    """
    with suppress(ChildProcessError):
        os.waitpid(leader, os.WNOHANG)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
