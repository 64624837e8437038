# SPDX-License-Identifier: Apache-2.0
"""Differences between what runs and what is to run, and what each does to jobs."""

from __future__ import annotations

from typing import Any

import pytest

from cellblock.cluster.changing.changes import EFFECTS, Change, compare, removed_partitions, running_memory

CONF = "slurm/slurm.conf"
LINE = "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"


def one(role: str, image: str = "sha256:1", **more: Any) -> dict[str, Any]:
    return {"role": role, "image": image, "environment": {}, "ssh_port": None, **more}


def node(memory: int = 100, gres: str = "", image: str = "sha256:1") -> dict[str, Any]:
    line = f"RealMemory={memory} Feature=cpu" + (f" Gres={gres}" if gres else "")
    return one("worker", image, environment={"CELLBLOCK_NODE_CONF": line, "CELLBLOCK_GRES": gres})


RUNS = {"controller": one("controller"), "login": one("login"), "cpu-1": node(), "cpu-2": node()}


def changes(after: dict[str, dict[str, Any]], **more: Any) -> tuple[Change, ...]:
    given = {"running": RUNS, "old": {}, "new": {}, "release": "24.11", **more}
    return compare(RUNS, after, **given).changes


def test_what_is_equal_changes_nothing() -> None:
    found = compare(RUNS, dict(RUNS), RUNS, {CONF: LINE}, {CONF: LINE}, "24.11")
    assert (found.changes, found.files, found.added, found.replaced, found.removed) == ((), (), (), (), ())


@pytest.mark.parametrize(("role", "effect"), [("controller", "restart"), ("login", "sessions")])
def test_another_image_of_a_role(role: str, effect: str) -> None:
    (change,) = changes({**RUNS, role: one(role, "sha256:2")})
    assert (change.what, change.effect, change.on) == (
        f"{role}: another build of its image",
        effect,
        (role,),
    )


def test_slurm_before_23_11_starts_the_whole_cluster_anew() -> None:
    (change,) = changes({**RUNS, "cpu-1": node(200)}, release="22.05")
    assert change.effect == "anew"


def test_another_auth_starts_the_whole_cluster_anew() -> None:
    before = {"controller": one("controller"), "worker-1": node()}
    after = {
        host: {**it, "environment": {**it["environment"], "CELLBLOCK_AUTH": "slurm"}}
        for host, it in before.items()
    }
    found = compare(before, after, before, {}, {}, "24.11")
    assert [(change.what, change.effect) for change in found.changes] == [
        ("controller, worker-1: auth: slurm instead of munge", "anew")
    ]
    assert found.auth
    assert found.anew


def test_nodes_that_differ_alike_are_one_change() -> None:
    (change,) = changes({**RUNS, "cpu-1": node(200), "cpu-2": node(200)})
    assert change == Change("cpu-1, cpu-2: RealMemory=200 instead of 100", "drain", ("cpu-1", "cpu-2"))


def test_a_node_that_does_not_run_is_started_whatever_it_was() -> None:
    after = {**RUNS, "cpu-1": node(gres="gpu:1")}
    (change,) = changes(after, running=["controller", "login", "cpu-2"])
    assert (change.what, change.effect) == ("cpu-1: does not run; Gres=gpu:1", "nothing")


def test_nodes_come_and_go() -> None:
    new, gone = changes({**{host: RUNS[host] for host in RUNS if host != "cpu-2"}, "fat-1": node()})
    assert new == Change("fat-1: new", "nothing", ("fat-1",))
    assert gone == Change("cpu-2: no longer in the file", "drain", ("cpu-2",))


def test_what_slurm_must_forget_and_what_gres_conf_makes_invalid() -> None:
    found = compare(RUNS, {**RUNS, "cpu-1": node(gres="gpu:1"), "cpu-2": node(300)}, RUNS, {}, {}, "24.11")
    assert found.forgotten == {"cpu-1", "cpu-2"}
    assert found.other == {"cpu-1"}


@pytest.mark.parametrize(
    ("release", "effect"), [("22.05", "restart"), ("24.11", "reconfigure"), ("26.05", "reconfigure")]
)
def test_lines_of_slurm_conf(release: str, effect: str) -> None:
    old = {CONF: f"MaxArraySize=10\nKillOnBadExit=1\n{LINE}"}
    new = {CONF: LINE.replace("INFINITE", "3-00:00:00") + "MaxArraySize=20\nPartitionName=big Nodes=big\n"}
    found = changes(dict(RUNS), old=old, new=new, release=release)
    assert {change.effect for change in found} == {effect}
    assert [change.what for change in found] == [
        "slurm.conf: MaxArraySize: 20 instead of 10",
        "slurm.conf: KillOnBadExit: no longer 1",
        "slurm.conf: PartitionName=main: MaxTime=3-00:00:00 instead of INFINITE",
        "slurm.conf: PartitionName=big is new",
    ]


def test_a_plan_of_the_jail_and_what_a_daemon_reads_when_it_starts() -> None:
    after = {**RUNS, "accounting": one("accounting")}
    found = compare(
        after, after, after, {}, {"worker/jail.fstab": "x", "accounting/slurmdbd.conf": "y"}, "24.11"
    )
    assert {change.effect for change in found.changes} == {"new steps", "restart"}
    assert found.replaced == ("accounting",)


def test_changes_are_told_with_the_least_harm_first() -> None:
    after = {**RUNS, "cpu-1": node(5), "login": one("login", "sha256:2"), "fat-1": node()}
    effects = [change.effect for change in changes(after, old={CONF: "A=1"}, new={CONF: "A=2"})]
    assert effects == sorted(effects, key=list(EFFECTS).index)
    assert len(effects) == 4


def test_partitions_that_are_gone() -> None:
    assert removed_partitions({CONF: LINE}, {CONF: ""}) == {"main": LINE.strip()}
    assert removed_partitions({CONF: LINE}, {CONF: LINE.replace("UP", "DOWN")}) == {}


def test_the_memory_of_nodes_that_run() -> None:
    assert running_memory({**RUNS, "big-set-1": node(7)}) == {"cpu": 100, "big-set": 7}
