# SPDX-License-Identifier: Apache-2.0
"""The doctor: what it says of a machine that lacks something, and that it only looks."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cellblock import doctor
from cellblock.doctor import Finding, can_run_up, examine, probe_system_call


@pytest.fixture(autouse=True)
def _no_apt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking apt takes seconds; what it answers is tested with the launcher."""
    monkeypatch.setattr(doctor, "_packages", lambda: iter(()))


def finding(subject: str) -> Finding:
    return next(one for one in examine() if one.subject == subject)


def test_warnings_do_not_keep_up_from_running() -> None:
    assert can_run_up([Finding("a", "ok", ""), Finding("b", "warning", "")])
    assert not can_run_up([Finding("a", "ok", ""), Finding("b", "missing", "")])


def test_everything_that_is_not_right_comes_with_a_next_step() -> None:
    for one in examine():
        assert one.verdict == "ok" or one.advice, one


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PROGRAMS", ("no-such-program",))
    assert finding("no-such-program") == Finding(
        "no-such-program", "missing", "not found", "apt-get install no-such-program"
    )


def test_a_program_that_does_not_work_is_named_with_what_it_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "broken"
    program.write_text("#!/bin/sh\necho no such runtime >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(doctor, "PROGRAMS", ("broken",))
    advice = "apt-get install --reinstall broken"
    assert finding("broken") == Finding("broken", "missing", "does not work: no such runtime", advice)


def test_without_root_up_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert finding("user").verdict == "missing"


def test_a_full_disk_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CELLBLOCK_STATE", str(tmp_path / "not/made/yet"))
    monkeypatch.setattr(doctor, "_DISK_GB", 10**9)
    assert finding("disk for state").verdict == "warning"
    assert not (tmp_path / "not").exists()


def test_a_kernel_without_the_mount_calls_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "probe_system_call", lambda number: errno.ENOSYS if number == 442 else 0)
    assert finding("mount calls").verdict == "missing"
    assert "lacks mount_setattr" in finding("mount calls").found


def test_a_system_call_that_does_not_exist_is_noticed() -> None:
    assert probe_system_call(100_000) == errno.ENOSYS
