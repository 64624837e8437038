# SPDX-License-Identifier: Apache-2.0
"""Slurm's configuration changes under a running slurmctld: what is bad leaves the old in use, and is said."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.local_cluster import LocalCluster
from tests.integration.roles.controller_pod import MAIN, ControllerPod, controller_pod

pytestmark = [pytest.mark.integration, pytest.mark.every_slurm, pytest.mark.needs_munge]

SECOND = "PartitionName=second Nodes=n-1\n"
THIRD = "PartitionName=third Nodes=n-2\n"
AS_ALICE = ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups")


@pytest.fixture(scope="module")
def pod(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerPod]:
    folder: Path = tmp_path_factory.mktemp("pod")
    # Slurm's user reads what stands for volumes.
    for each in (folder, folder.parent, folder.parent.parent):
        each.chmod(0o755)
    with controller_pod(cluster, folder) as running:
        yield running


@pytest.fixture(autouse=True)
def as_before(pod: ControllerPod) -> None:
    pod.put(MAIN)
    pod.wait_until("one partition", lambda: pod.partitions() == {"main"} and not pod.refused())


def wait_for(pod: ControllerPod, *partitions: str) -> None:
    pod.wait_until(f"{partitions}", lambda: pod.partitions() == {"main", *partitions})
    pod.wait_until("nothing is refused", lambda: not pod.refused())


def wait_for_refusal(pod: ControllerPod, why: str) -> None:
    pod.wait_until(f"it is refused: {why}", lambda: why in pod.refused())
    pod.wait_until("the log says why", lambda: why in pod.said())


def test_a_change_is_taken(pod: ControllerPod) -> None:
    pod.put(MAIN + SECOND)
    wait_for(pod, "second")


@pytest.mark.others_at_night
def test_nothing_is_read_while_nothing_is_exchanged(pod: ControllerPod) -> None:
    pod.put(MAIN + SECOND, {"note.conf": "read by nobody else\n"})
    wait_for(pod, "second")
    time.sleep(3)
    # /etc/slurm is memory, where a file that is read gets another time of access.
    pod.run("touch", "-a", "-d", "@0", "/etc/slurm/note.conf").ok()
    time.sleep(3)
    assert pod.run("stat", "-L", "-c", "%X", "/etc/slurm/note.conf").ok().strip() == "0"
    pod.put(MAIN + THIRD)
    wait_for(pod, "third")


@pytest.mark.others_at_night
def test_of_changes_within_a_second_the_last_is_taken(pod: ControllerPod) -> None:
    for lines in (SECOND, THIRD, SECOND, THIRD):
        pod.put(MAIN + lines)
    wait_for(pod, "third")


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("NoSuchKey=1\n", "NoSuchKey"),
        ("PartitionName=gpu Nodes=missing\n", "missing"),
        ("TaskPlugin=task/missing\n", "there is no plugin task/missing"),
        ("SlurmctldTimeout=soon\n", "soon"),
        (None, "there is no slurm.conf in it"),
    ],
    ids=["syntax", "missing_set", "plugin", "value", "empty"],
)
def test_what_is_bad_leaves_the_old_in_use(pod: ControllerPod, lines: str | None, why: str) -> None:
    pod.put(MAIN + SECOND)
    wait_for(pod, "second")
    number = pod.run("pidof", "slurmctld").ok()
    pod.put(lines if lines is None else MAIN + lines)
    wait_for_refusal(pod, why)
    assert pod.partitions() == {"main", "second"}
    assert pod.run("pidof", "slurmctld").ok() == number
    pod.put(MAIN + THIRD)
    wait_for(pod, "third")


def test_a_partition_goes_when_no_job_names_it_any_more(pod: ControllerPod) -> None:
    pod.put(MAIN + SECOND)
    wait_for(pod, "second")
    submit = (
        "sbatch",
        "--parsable",
        "--partition=second",
        "--mem=1",
        "--chdir=/",
        "--output=/dev/null",
        "--wrap=true",
    )
    job = pod.run(*AS_ALICE, *submit).ok().strip()
    pod.put(MAIN)
    wait_for_refusal(pod, f"second (jobs {job})")
    assert pod.partitions() == {"main", "second"}
    pod.run("scancel", job).ok()
    wait_for(pod)


def test_a_change_while_slurmctld_is_down(pod: ControllerPod) -> None:
    supervisor = pod.supervisor()
    pod.stop_slurmctld()
    try:
        pod.put(MAIN + SECOND)
        pod.wait_until("it is taken", lambda: "it starts with its new configuration" in pod.said())
    finally:
        pod.run("sh", "-c", f"kill -CONT {supervisor}").ok()
    wait_for(pod, "second")


def test_a_slurmctld_that_is_killed_meanwhile(pod: ControllerPod) -> None:
    pod.put(MAIN + SECOND)
    pod.run("sh", "-c", "sleep 2; kill -KILL $(pidof slurmctld)")
    wait_for(pod, "second")


def test_what_only_the_running_slurmctld_ends_over_is_taken_back(pod: ControllerPod) -> None:
    """The trial has a state of its own."""
    pod.put(MAIN + SECOND)
    wait_for(pod, "second")
    # node-supervise gives up one that never ran for ten seconds.
    time.sleep(10)
    pod.put(MAIN + "StateSaveLocation=/proc/nowhere\n")
    wait_for_refusal(pod, "slurmctld did not go on with it")
    assert pod.partitions() == {"main", "second"}
    pod.start()
    assert pod.partitions() == {"main", "second"}
    wait_for_refusal(pod, "2 times")


@pytest.mark.others_at_night
@pytest.mark.parametrize(("lines", "why"), [("NoSuchKey=1\n", "NoSuchKey"), (None, "no slurm.conf")])
def test_a_new_pod_starts_with_the_last_good_one(pod: ControllerPod, lines: str | None, why: str) -> None:
    pod.put(MAIN + SECOND)
    wait_for(pod, "second")
    kept = pod.folder / "state" / "configuration.controller" / "slurm.conf"
    pod.wait_until("it is kept", lambda: SECOND in kept.read_text())
    pod.put(lines if lines is None else MAIN + lines)
    pod.start()
    assert pod.partitions() == {"main", "second"}
    wait_for_refusal(pod, why)
