# SPDX-License-Identifier: Apache-2.0
"""Jobs that wait for nodes by name, or are ended: how slurmctld is asked and told, however many there are."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import cast

import docker
import pytest

from cellblock.cluster.backup import end_lost
from cellblock.cluster.changing.draining import Draining
from cellblock.cluster.changing.gone_nodes import forget_gone
from cellblock.cluster.changing.waiting_jobs import WaitingJobs
from cellblock.cluster.facts.state import ClusterState
from cellblock.events import Event, Events, Message
from tests.cluster.fake_engine import FakeContainer, FakeEngine

# Stands for scontrol, which scripts of ours call; $JOBS has a file for each job: nodes, and why it waits.
_SCONTROL = r"""#!/bin/bash
[ "$1" != --oneliner ] || shift
case $1.$2 in
show.hostnames) for n in $(seq 1 40); do echo "gone-$n"; done ;;
show.nodes) for n in $(seq 1 40); do echo "NodeName=gone-$n State=DOWN Reason=NodeName=x"; done ;;
hold.*) [ -f "$JOBS/$2" ] && sed -i 's/|.*/|JobHeldAdmin/' "$JOBS/$2" ;;
release.*) [ -f "$JOBS/$2" ] && sed -i 's/|.*/|None/' "$JOBS/$2" ;;
update.jobid=*) [ -f "$JOBS/${2#jobid=}" ] && [ "$3" != reqnodelist=away ] &&
    sed -i "s/^[^|]*/${3#reqnodelist=}/" "$JOBS/${2#jobid=}" ;;
requeue.*) grep -q fixed "$JOBS/$2" && exit 1; rm "$JOBS/$2" ;;
esac
"""
_SCANCEL = """#!/bin/bash
rm "$JOBS/$1"
"""


class Slurm:
    """A slurmctld of files, and the commands that were executed in its container."""

    def __init__(self, folder: Path) -> None:
        self.jobs, self.commands = folder / "jobs", list[list[str]]()
        self.jobs.mkdir()
        (folder / "bin").mkdir()
        for name, text in (("scontrol", _SCONTROL), ("scancel", _SCANCEL)):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        self._environment = {"JOBS": str(self.jobs), "PATH": f"{folder}/bin:/usr/bin:/bin"}

    def submit(self, number: int, nodes: str, why: str = "None") -> None:
        (self.jobs / str(number)).write_text(f"{nodes}|{why}\n")

    def job(self, number: int) -> str:
        return (self.jobs / str(number)).read_text().strip()

    def execute(self, container: FakeContainer, command: list[str]) -> tuple[int, str]:
        self.commands.append(command)
        if command[0] == "squeue":
            jobs = [(one.name, *one.read_text().strip().split("|")) for one in self.jobs.iterdir()]
            asked = next(word for word in command if word.startswith("--format="))
            return 0, "".join(
                asked.removeprefix("--format=")
                .replace("%i", job)
                .replace("%A", job)
                .replace("%n", nodes)
                .replace("%N", nodes)
                .replace("%r", why)
                + "\n"
                for job, nodes, why in jobs
            )
        if command[0] == "sinfo":
            return 0, "".join(f"gone-{number}|idle|0/2/0/2|none\n" for number in range(1, 41))
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


@pytest.fixture
def slurm(tmp_path: Path, engine: FakeEngine) -> Slurm:
    found = Slurm(tmp_path)
    engine.containers.create("image", name="cellblock-test-controller", labels={})
    engine.on_exec = found.execute
    return found


@pytest.fixture
def waiting(engine: FakeEngine, tmp_path: Path) -> WaitingJobs:
    return WaitingJobs(cast(docker.DockerClient, engine), "test", tmp_path)


def test_jobs_are_held_without_the_name_and_get_it_back(slurm: Slurm, waiting: WaitingJobs) -> None:
    slurm.submit(1, "gone-7")
    slurm.submit(2, "gone-[1-40]", "JobHeldUser")
    slurm.submit(3, "worker-1")
    slurm.submit(4, "")
    waiting.set_aside(["gone-7"])
    assert [slurm.job(one) for one in (1, 2, 3, 4)] == [
        "|JobHeldAdmin",
        "|JobHeldUser",
        "worker-1|None",
        "|None",
    ]
    waiting.give_back()
    assert [slurm.job(one) for one in (1, 2)] == ["gone-7|None", "gone-[1-40]|JobHeldUser"]


def test_more_jobs_and_nodes_take_no_more_commands(slurm: Slurm, waiting: WaitingJobs) -> None:
    counts = []
    for jobs, nodes in ((1, 1), (120, 40)):
        for number in range(jobs):
            slurm.submit(number, "gone-[1-40]" if number % 2 else "gone-1")
        slurm.commands.clear()
        waiting.set_aside([f"gone-{number}" for number in range(1, nodes + 1)])
        waiting.give_back()
        counts.append(len(slurm.commands))
        assert slurm.job(0) == "gone-1|None"
    # A list of nodes that is written otherwise is one more to read, and to give back.
    assert counts[1] <= counts[0] + 3, counts


def test_a_job_that_ends_meanwhile_is_left_alone_and_one_whose_nodes_are_away_stays_held(
    slurm: Slurm, waiting: WaitingJobs
) -> None:
    for number, nodes in ((1, "gone-1"), (2, "away"), (3, "gone-1")):
        slurm.submit(number, nodes)
    waiting.set_aside(["gone-1", "away"])
    (slurm.jobs / "3").unlink()
    waiting.give_back()
    assert slurm.job(1) == "gone-1|None"
    assert slurm.job(2) == "|JobHeldAdmin"
    said: list[Event] = []
    events = Events()
    events.subscribe(said.append)
    waiting.leave(events)
    assert [str(one).count("job 2 ") for one in said] == [1]


def test_nodes_that_are_gone_are_forgotten_by_one_command(
    slurm: Slurm, waiting: WaitingJobs, engine: FakeEngine
) -> None:
    state = ClusterState("test", "debian13", "24.11", "podman", ["gone-1"], ["gone-1"], 1, "/volume")
    slurm.submit(1, "gone-2")
    forget_gone(cast(docker.DockerClient, engine), state, waiting, Events())
    told = [command for command in slurm.commands if command[:2] == ["scontrol", "delete"]]
    assert len(told) == 1
    assert told[0][2].count(",") == 38
    assert "gone-1," not in told[0][2]
    assert len(slurm.commands) < 12


def test_jobs_are_queued_again_or_ended_by_one_command_for_many(
    slurm: Slurm, waiting: WaitingJobs, engine: FakeEngine
) -> None:
    for number in range(1200):
        slurm.submit(number, "gone-1", "fixed" if number % 3 else "None")
    client = cast(docker.DockerClient, engine)
    Draining(client, "test", ["gone-1"], waiting, Events()).end_jobs()
    assert not list(slurm.jobs.iterdir())
    assert len(slurm.commands) == 4  # one question, and one command for 500 jobs


def test_a_restore_says_of_each_job_what_became_of_it(slurm: Slurm, engine: FakeEngine) -> None:
    for number, why in ((1, "None"), (2, "fixed"), (3, "None")):
        slurm.submit(number, "gone-1", why)
    said: list[Event] = []
    events = Events()
    events.subscribe(said.append)
    end_lost(cast(docker.DockerClient, engine), "test", events)
    texts = sorted(one.text for one in said if isinstance(one, Message))
    assert ["is cancelled" in text for text in texts] == [False, True, False]
    assert ["is queued again" in text for text in texts] == [True, False, True]
    assert len(slurm.commands) == 2


def test_nodes_that_still_have_jobs_are_found_by_one_question(
    slurm: Slurm, waiting: WaitingJobs, engine: FakeEngine
) -> None:
    """However many nodes they are: slurmctld gives all of its jobs with each answer."""
    nodes = [f"gone-{number}" for number in range(1, 41)]
    slurm.submit(1, "gone-7")
    draining = Draining(cast(docker.DockerClient, engine), "test", nodes, waiting, Events())
    empty = draining.as_they_empty(nodes, 60)
    assert {next(empty) for _ in range(39)} == {*nodes} - {"gone-7"}
    assert sum(command[0] == "squeue" for command in slurm.commands) == 1
    (slurm.jobs / "1").unlink()
    assert list(empty) == ["gone-7"]
