# SPDX-License-Identifier: Apache-2.0
"""Which pods are to be made or removed, given what Slurm wants and which pods there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from cellblock_node_pods.decide import (
    AGAIN_S,
    PATIENCE_S,
    STALE_S,
    Action,
    Create,
    GiveUp,
    Memory,
    Remove,
    decide,
    in_transit,
    set_of,
    without_api,
)
from cellblock_node_pods.node_requests import NodeRequest, NodeRequests
from cellblock_node_pods.pods import Pod

START_S = {"gpu": 600.0}
NOW = 1000.0
POD = Pod("gpu-1", "u1")


def requests(
    *nodes: tuple[str, str, float], told: Mapping[str, str] | None = None, age_s: float | None = 1.0
) -> NodeRequests:
    """Requests (NODE, STATE, seconds ago); the token of each is its node's name and time."""
    made = {node: NodeRequest(state, f"{node}@{ago}", NOW - ago) for node, state, ago in nodes}  # type: ignore[arg-type]
    return NodeRequests(made, told or {}, age_s)


def decided(wanted: NodeRequests, *pods: Pod, memory: Memory | None = None, now: float = NOW) -> list[Action]:
    known = Memory() if memory is None else memory
    return decide(wanted, {pod.node: pod for pod in pods}, known, START_S, now)


UP = ("gpu-1", "up", 10.0)
TOKEN = "gpu-1@10.0"


def test_a_wanted_node_gets_a_pod_and_then_nothing() -> None:
    assert decided(requests(UP)) == [Create("gpu-1", TOKEN)]
    assert decided(requests(UP), POD) == []
    assert decided(requests(UP), replace(POD, ready=True)) == []


def test_a_pod_that_nobody_wants_goes_once() -> None:
    assert decided(requests(("gpu-1", "down", 1.0)), POD) == [Remove(POD)]
    assert decided(requests(), POD) == [Remove(POD)], "after a restart: of a node that is in no file any more"
    assert decided(requests(), replace(POD, leaving=True)) == []


@pytest.mark.parametrize("age_s", [None, STALE_S + 1])
def test_nothing_is_done_on_requests_that_may_be_old(age_s: float | None) -> None:
    """An empty folder, of a controller that has just started, wants no pod removed."""
    assert decided(requests(age_s=age_s), POD) == []
    assert decided(requests(UP, age_s=age_s)) == []
    assert without_api(requests(("gpu-1", "up", 5000.0), age_s=age_s), Memory(), START_S, NOW, "x") == []


@pytest.mark.parametrize("trouble", ["image", "container", "crash"])
def test_what_no_time_cures_has_a_moment(trouble: str) -> None:
    memory = Memory()
    pod = replace(POD, trouble=trouble, reason="ErrImagePull: no such image")  # type: ignore[arg-type]
    assert decided(requests(UP), pod, memory=memory) == []
    assert decided(requests(UP), pod, memory=memory, now=NOW + PATIENCE_S - 1) == []
    waits = replace(pod, reason="BackOff: waits")
    later = decided(requests(UP), waits, memory=memory, now=NOW + PATIENCE_S)
    assert later == [GiveUp("gpu-1", TOKEN, "ErrImagePull: no such image", waits)]


def test_a_container_that_runs_between_its_crashes_is_in_trouble_all_the_time() -> None:
    memory = Memory()
    crashing = replace(POD, trouble="crash", reason="ends again and again")
    decided(requests(UP), crashing, memory=memory)
    assert decided(requests(UP), POD, memory=memory, now=NOW + PATIENCE_S) == []
    (given_up,) = decided(requests(UP), crashing, memory=memory, now=NOW + PATIENCE_S + 1)
    assert isinstance(given_up, GiveUp)


def test_a_machine_may_take_as_long_as_a_start_may() -> None:
    pod = replace(POD, trouble="place", reason="Unschedulable: 0/2 nodes are available")
    assert decided(requests(("gpu-1", "up", 600.0)), pod) == []
    (given_up,) = decided(requests(("gpu-1", "up", 601.0)), pod)
    assert isinstance(given_up, GiveUp)
    assert given_up.pod == pod
    assert given_up.reason == "its pod did not start within 10 min: Unschedulable: 0/2 nodes are available"


def test_a_node_that_serves_is_slurms_to_judge() -> None:
    """Neither a probe that fails nor any time ends a pod with jobs, nor does a restart of this program."""
    serving = requests(("gpu-1", "serves", 86400.0))
    assert decided(serving, replace(POD, ready=False)) == []
    assert decided(serving, replace(POD, trouble="crash", reason="ends")) == []
    assert decided(serving, replace(POD, leaving=True)) == [], "its jobs have their time"


def test_slurm_hears_of_a_pod_that_is_gone() -> None:
    serving = requests(("gpu-1", "serves", 86400.0))
    (given_up,) = decided(serving)
    assert isinstance(given_up, GiveUp)
    assert given_up.reason.startswith("its pod is gone")
    ended = replace(POD, ended=True, reason="Evicted: low on memory")
    assert decided(serving, ended) == [
        GiveUp("gpu-1", "gpu-1@86400.0", "its pod has ended: Evicted: low on memory", ended)
    ]


def test_a_pod_that_goes_while_it_starts_is_not_made_again_behind_slurms_back() -> None:
    memory = Memory()
    decided(requests(UP), POD, memory=memory)
    assert decided(requests(UP), replace(POD, leaving=True), memory=memory) == []
    (given_up,) = decided(requests(UP), memory=memory)
    assert isinstance(given_up, GiveUp)
    assert given_up.reason.startswith("its pod is gone")


def test_a_new_request_waits_for_the_end_of_the_former_pod() -> None:
    leaving = replace(POD, leaving=True, machine="m7")
    assert decided(requests(UP), leaving) == []
    (given_up,) = decided(requests(("gpu-1", "up", 601.0)), leaving)
    assert isinstance(given_up, GiveUp)
    assert given_up.pod is None
    assert given_up.reason == "its former pod has not ended on m7 for 10 min"


def test_what_was_given_up_is_given_up_once_and_its_pod_goes() -> None:
    told = requests(UP, told={"gpu-1": TOKEN})
    assert decided(told, POD) == [Remove(POD)]
    assert decided(told) == []
    assert decided(requests(UP, told={"gpu-1": "another"})) == [Create("gpu-1", TOKEN)]
    assert decided(requests(UP), POD, memory=Memory(given_up={TOKEN})) == [Remove(POD)]


def test_what_the_api_refuses_is_tried_again_and_then_given_up() -> None:
    memory = Memory()
    memory.note_refusal(TOKEN, "exceeded quota", NOW)
    assert decided(requests(UP), memory=memory, now=NOW + AGAIN_S - 1) == []
    assert decided(requests(UP), memory=memory, now=NOW + AGAIN_S) == [Create("gpu-1", TOKEN)]
    memory.note_refusal(TOKEN, "exceeded quota", NOW + AGAIN_S)
    (given_up,) = decided(requests(UP), memory=memory, now=NOW + PATIENCE_S)
    assert given_up == GiveUp("gpu-1", TOKEN, "Kubernetes refuses its pod: exceeded quota")


def test_an_old_request_makes_no_pod() -> None:
    """Slurm has given it up, or is about to: it would be in the way of the next one."""
    (given_up,) = decided(requests(("gpu-1", "up", 601.0)))
    assert isinstance(given_up, GiveUp)
    assert given_up.reason == "no pod could be made within 10 min"


def test_a_set_without_a_template_is_said() -> None:
    (given_up,) = decided(requests(("new-set-3", "up", 1.0)))
    assert isinstance(given_up, GiveUp)
    assert given_up.reason == "there is no template for pods of set new-set"


def test_without_an_api_starts_alone_are_given_up_in_time() -> None:
    wanted = requests(("gpu-1", "up", 601.0), ("gpu-2", "up", 599.0), ("gpu-3", "serves", 9999.0))
    assert [one.node for one in without_api(wanted, Memory(), START_S, NOW, "500")] == ["gpu-1"]
    (given_up,) = without_api(wanted, Memory(), START_S, NOW, "500 no leader")
    assert given_up.reason == "Kubernetes has not answered for 10 min: 500 no leader"
    assert not without_api(wanted, Memory(given_up={given_up.token}), START_S, NOW, "500")


def test_what_is_forgotten() -> None:
    memory = Memory({"old": "u0"}, {"old"}, {("u0", "image"): (1.0, "x")})
    memory.note_refusal("old", "no", 1.0)
    decided(requests(UP), POD, memory=memory)
    assert memory == Memory({TOKEN: "u1"})


def test_sets_and_transit() -> None:
    assert set_of("big-gpu-12") == "big-gpu"
    ready = replace(POD, ready=True)
    assert not in_transit(requests(UP), {"gpu-1": ready})
    assert in_transit(requests(UP), {"gpu-1": POD})
    assert in_transit(requests(), {"gpu-1": ready})
    assert in_transit(requests(UP), {"gpu-1": replace(ready, leaving=True)})
