# SPDX-License-Identifier: Apache-2.0
"""The exact text of the three views."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest
from rich.console import Console

from cellblock.cli.views import JsonView, PlainView, TableView, make_view
from cellblock.errors import UsageError
from cellblock.events import Event, Events, Message, Output, Progress, StepFinished, StepStarted, SubjectState

STORY: list[Event] = [
    SubjectState("base", "waiting", time=0),
    SubjectState("slurm", "cached", time=0),
    SubjectState("base", "running", time=1),
    StepStarted("base", "bootstrap", time=1),
    Output("base", "bootstrap", "I: downloading", time=2),
    StepFinished("base", "bootstrap", 2.04, time=3),
    StepStarted("base", "commit", time=3),
    StepFinished("base", "commit", 0.2, time=3.2),
    SubjectState("base", "done", seconds=2.24, download_s=1.5, time=3.2),
    Message("3 images are up to date", time=3.2),
    Message("cgroup v1 here", level="warning", time=3.2),
    SubjectState("worker", "running", time=4),
    StepStarted("worker", "install", time=4),
    Output("worker", "install", "E: \x1b[31mno space\x1b[0m", time=5),
    SubjectState("worker", "failed", "apt ended with 100", seconds=1.0, time=5),
]


def tell(view: Callable[[Event], None]) -> None:
    for event in STORY:
        view(event)


def test_plain_view_has_a_line_for_each_state_and_step() -> None:
    out = io.StringIO()
    tell(PlainView(out))
    assert out.getvalue().splitlines() == [
        "slurm: cached",
        "base: started",
        "base: bootstrap",
        "base: bootstrap: done in 2.0 s",
        "base: commit",
        "base: done in 2.2 s (downloading 1.5 s)",
        "3 images are up to date",
        "warning: cgroup v1 here",
        "worker: started",
        "worker: install",
        "worker: failed after 1.0 s: apt ended with 100",
    ]


def test_plain_view_reports_progress_every_ten_seconds() -> None:
    out = io.StringIO()
    view = PlainView(out)
    view(StepStarted("jail", "write", time=0))
    for second in range(25):
        view(Progress("jail", second * 10**8, 25 * 10**8, time=second))
    assert out.getvalue().splitlines() == [
        "jail: write",
        "jail: 40 % of 2.5 GB",
        "jail: 80 % of 2.5 GB",
    ]


def test_json_view_writes_an_object_a_line() -> None:
    out = io.StringIO()
    tell(JsonView(out))
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(lines) == len(STORY)
    assert lines[8] == {
        "event": "subject_state",
        "time": 3.2,
        "subject": "base",
        "state": "done",
        "detail": "",
        "seconds": 2.24,
        "download_s": 1.5,
    }
    assert {line["event"] for line in lines} == {
        "subject_state",
        "step_started",
        "step_finished",
        "output",
        "message",
    }


def drawn(view: TableView) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=80).print(view.table())
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_table_shows_each_subject_and_keeps_what_failed() -> None:
    view = TableView(io.StringIO(), clock=lambda: 7.0)
    for event in STORY[:5]:
        view(event)
    assert drawn(view) == [
        "base   running   6.0 s  bootstrap: I: downloading",
        "slurm  cached",
    ]
    for event in STORY[5:]:
        view(event)
    view.close()
    assert drawn(view) == [
        "base    done      2.2 s  downloading 1.5 s",
        "slurm   cached",
        "worker  failed    1.0 s  install: apt ended with 100",
    ]


def test_table_shows_progress_with_rate_and_time_left() -> None:
    view = TableView(io.StringIO(), clock=lambda: 2.0)
    view(StepStarted("jail", "write", time=0.5))
    view(Progress("jail", 3 * 10**8, 10**9, time=2))
    assert drawn(view) == ["jail  running   1.5 s  write: 30 % of 1.0 GB, 200.0 MB/s, 4 s left"]
    view.close()


def test_what_has_only_steps_is_done_with_each_of_them() -> None:
    view = TableView(io.StringIO(), clock=lambda: 9.0)
    view(StepStarted("packages", "fetch 3 packages", time=1))
    view(Progress("packages", 500, 500, time=2))
    view(StepFinished("packages", "fetch 3 packages", 2.0, time=3))
    assert drawn(view) == ["packages  done      2.0 s  fetch 3 packages"]
    view(StepStarted("packages", "fetch 1 packages", time=7))
    assert drawn(view) == ["packages  running   2.0 s  fetch 1 packages"]
    view.close()


def test_nothing_runs_in_the_last_table_of_what_was_interrupted() -> None:
    view = TableView(io.StringIO(), clock=lambda: 9.0)
    view(StepStarted("packages", "fetch 3 packages", time=1))
    view(SubjectState("base", "running", time=2))
    view.close()
    assert drawn(view) == ["packages  stopped   8.0 s  fetch 3 packages", "base      stopped   7.0 s"]


def test_table_lets_no_program_move_the_cursor() -> None:
    view = TableView(io.StringIO(), clock=lambda: 5.0)
    for event in STORY[11:14]:
        view(event)
    assert drawn(view) == ["worker  running   1.0 s  install: E: no space"]
    view.close()


def test_a_table_that_never_runs_anything_draws_nothing() -> None:
    out = io.StringIO()
    view = TableView(out)
    view(SubjectState("base", "cached"))
    view(Message("all images are up to date"))
    view.close()
    assert out.getvalue() == "all images are up to date\n"


def test_make_view_subscribes_and_is_plain_without_a_terminal() -> None:
    out, events = io.StringIO(), Events()
    with make_view("auto", events, out):
        events.info("hello")
    assert out.getvalue() == "hello\n"


def test_make_view_closes_when_the_work_fails() -> None:
    out, events = io.StringIO(), Events()
    view = make_view("json", events, out)
    with pytest.raises(RuntimeError), view:
        raise RuntimeError


def test_an_unknown_view_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--log xml: there is no such view"), make_view("xml", Events()):
        pass
