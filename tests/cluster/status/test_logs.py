# SPDX-License-Identifier: Apache-2.0
"""Which lines of daemons are about a job, and lists of clusters."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cellblock.cluster import logs
from cellblock.cluster.listing import list_clusters
from cellblock.cluster.logs import LogRequest, log_lines
from cellblock.errors import CellblockError


@pytest.mark.parametrize(
    ("line", "about"),
    [
        ("slurmctld: sched: Allocate JobId=7 NodeList=worker-1", True),
        ("slurmd: Launching batch job 7 for UID 1000", True),
        ("[2026-11-24T08:45:04.803] [7.extern] done with step", True),
        ("launch task StepId=7.0 request from UID:0", True),
        ("slurmctld: sched: Allocate JobId=77 NodeList=worker-1", False),
        ("slurmctld: JobId=70_7(71)", False),
        ("slurmd: CPUs=7 Memory=7", False),
        ("[2026-11-24T07:07:07.777] [17.0] done with step", False),
    ],
)
def test_a_line_is_about_a_job(line: str, about: bool) -> None:
    assert bool(re.search(logs._JOB.format(number=7), line)) is about


def test_what_users_have_daemons_print_does_not_reach_the_terminal() -> None:
    line = logs._line("worker-1", b"2026-11-24T08:00:00.5Z slurmd: \x1b[2Jgone\x9b\tname \xc3\xa4\n")
    assert (line.time, line.text) == ("2026-11-24T08:00:00.5Z", "slurmd: \\x1b[2Jgone\ufffd\tname ä")


def test_a_cluster_that_is_not_there_is_named() -> None:
    with pytest.raises(CellblockError, match="there is no cluster nope"):
        next(log_lines(LogRequest("nope")))


def test_a_damaged_state_and_a_kept_jail_are_listed(state: Path) -> None:
    for name, text in (("kept", None), ("odd", "{"), ("older", json.dumps({"name": "older"}))):
        folder = state / "clusters" / name
        folder.mkdir(parents=True)
        if text is not None:
            (folder / "state.json").write_text(text)
    assert [(one.name, one.state) for one in list_clusters()] == [
        ("kept", "stopped"),
        ("odd", "unknown"),
        ("older", "unknown"),
    ]
