# SPDX-License-Identifier: Apache-2.0
"""One writer a volume: among threads, processes and hosts; the dead are known, the living left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from cellblock.errors import CellblockError
from cellblock.jail.volume import writer_lock
from cellblock.jail.volume.writer_lock import BusyError, LostLockError, WriterLock, myself

LEASE_S = 30.0
"""Nobody is silent for that long by chance."""
SHORT_S = 3.0
"""Of tests that wait for its end: a machine's stalls are shorter, it is to be hoped."""
OTHER_BOOT = "01234567-89ab-cdef-0123-456789abcdef"


@pytest.fixture(autouse=True)
def without_fcntl(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """As on NFS mounted with `nolock`, where each host has its own locks; the record alone must do."""
    monkeypatch.setattr(writer_lock, "BEAT_S", 0.1)
    if "with_fcntl" not in request.keywords:
        monkeypatch.setattr(writer_lock.fcntl, "lockf", lambda *arguments: None)


def lock(private: Path, host: str = "", lease_s: float = LEASE_S) -> WriterLock:
    """The lock as this host sees it, or as another one does."""
    me = replace(myself(f"jail upgrade by {host or 'this host'}"), beat=0)
    if host:
        me = replace(me, host=host, boot=OTHER_BOOT.replace("0", str(len(host))), pid=1)
    return WriterLock(private, private, me, lease_s)


@pytest.mark.parametrize(("first", "second"), [("", "far"), ("far", ""), ("far", "farther"), ("", "")])
def test_a_living_holder_is_named_and_left_alone(tmp_path: Path, first: str, second: str) -> None:
    with lock(tmp_path, first).held() as check:
        for _ in range(2):
            with (
                pytest.raises(
                    CellblockError, match=rf"`jail upgrade by {first or 'this host'}` \(process .* since"
                ),
                lock(tmp_path, second).held(),
            ):
                pass
            check()
    with lock(tmp_path, second).held():
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock"]


def test_a_killed_holder_of_this_host_is_taken_over_at_once(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from cellblock.jail.volume.writer_lock import *\n"
        "p = Path(sys.argv[1])\n"
        "with WriterLock(p, p, myself('x')).held(): print('locked', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(CellblockError, match=f"process {holder.pid} on"), lock(tmp_path).held():
            pass
        holder.kill()
        holder.wait()
        started = time.monotonic()
        with lock(tmp_path).held() as check:
            check()
        assert time.monotonic() - started < LEASE_S / 2


def silent(private: Path, host: str) -> None:
    """The record that a host leaves that lost its power."""
    dead = lock(private, host)
    dead._take_record(lambda text: None)


def test_a_silent_host_is_taken_over_after_its_lease(tmp_path: Path) -> None:
    silent(tmp_path, "far")
    notices: list[str] = []
    started = time.monotonic()
    with lock(tmp_path, lease_s=SHORT_S).held(notices.append) as check:
        assert time.monotonic() - started >= SHORT_S
        check()
    assert "is silent; waiting" in notices[0]


@pytest.mark.parametrize("host", ["far", ""])
def test_only_one_takes_over(tmp_path: Path, host: str) -> None:
    silent(tmp_path, "dead-host")
    holding, most, entered = 0, 0, 0
    guard = threading.Lock()

    def contend(number: int) -> None:
        nonlocal holding, most, entered
        while True:
            try:
                with lock(tmp_path, f"{host}{'x' * number}" if host else "", SHORT_S).held():
                    with guard:
                        holding += 1
                        most, entered = max(most, holding), entered + 1
                    time.sleep(0.05)
                    with guard:
                        holding -= 1
                    return
            except CellblockError:
                time.sleep(0.01)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, entered) == (1, 8)


def test_who_died_taking_over_is_taken_over_too(tmp_path: Path) -> None:
    silent(tmp_path, "far")  # and the next one died: that is known at once
    record = writer_lock.Holder(**json.loads((tmp_path / "writer").read_text()))
    gone = replace(myself("died"), pid=2**22 + 1, start=1)
    (tmp_path / f"writer-after-{record.token}").write_text(json.dumps(writer_lock.asdict(gone)))
    with lock(tmp_path).held() as check:
        check()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock"]


def test_a_holder_that_was_stopped_too_long_gives_up(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from dataclasses import replace\n"
        "from cellblock.jail.volume import writer_lock as w\n"
        "w.fcntl.lockf = lambda *a: None; p = Path(sys.argv[1])\n"
        f"me = replace(w.myself('x'), boot='{OTHER_BOOT}')\n"
        f"with w.WriterLock(p, p, me, {SHORT_S}).held() as check:\n"
        "    print('locked', flush=True); sys.stdin.readline()\n"
        "    try: check(); print('WRITES')\n"
        "    except w.LostLockError as error: print(error.message)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        os.kill(holder.pid, signal.SIGSTOP)
        with lock(tmp_path, lease_s=SHORT_S).held() as check:
            os.kill(holder.pid, signal.SIGCONT)
            out, _ = holder.communicate("\n")
            assert "was taken over by `jail upgrade by this host`" in out
            check()


@pytest.mark.with_fcntl
def test_a_stopped_holder_of_this_host_is_never_taken_over(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from cellblock.jail.volume.writer_lock import *\n"
        "p = Path(sys.argv[1])\n"
        f"with WriterLock(p, p, myself('x'), {SHORT_S}).held(): print('locked', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        os.kill(holder.pid, signal.SIGSTOP)
        time.sleep(SHORT_S * 1.1)
        with (
            pytest.raises(CellblockError, match="is being written by"),
            lock(tmp_path, "far", SHORT_S).held(),
        ):
            pass
        holder.kill()


def test_a_lost_lock_says_so(tmp_path: Path) -> None:
    mine = lock(tmp_path)
    with mine.held() as check:
        (tmp_path / "writer").unlink()
        silent(tmp_path, "far")
        deadline = time.monotonic() + 60
        while not mine._lost.is_set() and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(LostLockError, match="taken over by `jail upgrade by far`"):
            check()


def test_a_record_that_cannot_be_read_is_taken_over_after_a_lease(tmp_path: Path) -> None:
    """A power cut left it empty."""
    for text in ("", "{}", '{"token"'):
        (tmp_path / "writer").write_text(text)
        notices: list[str] = []
        started = time.monotonic()
        with lock(tmp_path, lease_s=SHORT_S).held(notices.append) as check:
            check()
            assert time.monotonic() - started >= SHORT_S
        assert "left no record" in notices[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock"]


def test_a_record_that_becomes_readable_meanwhile_is_believed(tmp_path: Path) -> None:
    (tmp_path / "writer").write_text("")
    record = json.dumps(asdict(myself("jail upgrade of this process")))

    def write(_notice: str) -> None:
        (tmp_path / "writer").write_text(record)

    with (
        pytest.raises(BusyError, match="jail upgrade of this process"),
        lock(tmp_path, lease_s=SHORT_S).held(write),
    ):
        pass


def test_without_hard_links_only_one_holds_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(writer_lock.os, "link", refused)
    with (
        lock(tmp_path).held(),
        pytest.raises(CellblockError, match="`jail upgrade by this host`"),
        lock(tmp_path, "far").held(),
    ):
        pass
    silent(tmp_path, "far")
    with lock(tmp_path, lease_s=SHORT_S).held() as check:
        check()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock"]
