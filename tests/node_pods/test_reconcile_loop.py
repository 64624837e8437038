# SPDX-License-Identifier: Apache-2.0
"""The loop of the program against an API over HTTP, with the folder that slurmctld's container shares."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cellblock_node_pods.api import Access, Api, Fault, Refused
from cellblock_node_pods.decide import PATIENCE_S, STALE_S
from cellblock_node_pods.node_requests import one_line, read_requests
from cellblock_node_pods.reconcile_loop import ReconcileLoop

from tests.node_pods.fake_api import FakeApi, running, silent_after

TEMPLATE = {
    "metadata": {
        "labels": {"app.kubernetes.io/instance": "test"},
        "annotations": {"cellblock.org/start-within": "600"},
    },
    "spec": {"containers": [{"name": "slurmd", "image": "worker"}]},
}


class Controller:
    """The folder, and slurmctld's container's hand in it; time goes as it says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = time.time()
        (folder / "wanted").mkdir(parents=True)
        self.asks()

    def asks(self) -> None:
        """slurmctld was asked just now."""
        (self.folder / "fresh").touch()
        os.utime(self.folder / "fresh", (self.now, self.now))

    def want(self, state: str, node: str, token: str) -> None:
        path = self.folder / "wanted" / node
        path.write_text(f"{state} {token}\n")
        os.utime(path, (self.now, self.now))

    def told(self) -> dict[str, str]:
        place = self.folder / "told"
        return {one.name: one.read_text().strip() for one in place.iterdir()} if place.is_dir() else {}

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.asks()


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with running(FakeApi()) as one:
        yield one


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    return Controller(tmp_path / "requests")


@pytest.fixture
def access(api: FakeApi, tmp_path: Path) -> Access:
    (tmp_path / "token").write_text("secret\n")
    return Access(api.url, "slurm", tmp_path / "token", tmp_path / "none", limit_s=5)


def started(access: Access, controller: Controller, tmp_path: Path) -> ReconcileLoop:
    """The program, just started."""
    templates = tmp_path / "templates"
    templates.mkdir(exist_ok=True)
    (templates / "gpu.json").write_text(json.dumps(TEMPLATE))
    selector = "app.kubernetes.io/instance=test,cellblock.org/on-demand=yes"
    return ReconcileLoop(Api(access), controller.folder, templates, selector, "nodes", lambda: controller.now)


@pytest.fixture
def rounds(access: Access, controller: Controller, tmp_path: Path) -> ReconcileLoop:
    return started(access, controller, tmp_path)


def test_from_a_request_to_a_pod_and_back(
    api: FakeApi, controller: Controller, rounds: ReconcileLoop
) -> None:
    controller.want("up", "gpu-1", "t1")
    assert rounds.once() < 5
    pod = api.pods["gpu-1"]
    assert pod["metadata"]["labels"]["cellblock.org/on-demand"] == "yes"
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("gpu-1", "nodes")
    api.becomes_ready("gpu-1")
    controller.want("serves", "gpu-1", "t1")
    assert rounds.once() >= 5, "nothing is to change soon"
    controller.want("down", "gpu-1", "t2")
    rounds.once()
    assert api.pods == {}
    assert controller.told() == {}


def test_pods_of_others_are_not_touched(api: FakeApi, controller: Controller, rounds: ReconcileLoop) -> None:
    api.has("stray-1")["metadata"]["labels"].pop("cellblock.org/on-demand")
    api.has("gpu-2")["metadata"]["labels"]["app.kubernetes.io/instance"] = "another"
    rounds.once()
    assert set(api.pods) == {"stray-1", "gpu-2"}
    controller.want("up", "gpu-2", "t1")
    rounds.once()
    controller.later(PATIENCE_S)
    rounds.once()
    reason = "Kubernetes refuses its pod: another pod has its name"
    assert controller.told() == {"gpu-2": f"t1 {reason}"}
    assert set(api.pods) == {"stray-1", "gpu-2"}


def test_killed_between_create_and_note(
    api: FakeApi, controller: Controller, access: Access, tmp_path: Path
) -> None:
    """There is no note: the pod has the node's name."""
    controller.want("up", "gpu-1", "t1")
    started(access, controller, tmp_path).once()
    uid = api.pods["gpu-1"]["metadata"]["uid"]
    started(access, controller, tmp_path).once()
    assert [api.pods["gpu-1"]["metadata"]["uid"], controller.told()] == [uid, {}]
    assert api.asked.count("POST pods") == 1


def test_two_at_once(api: FakeApi, controller: Controller, access: Access, tmp_path: Path) -> None:
    one, other = (started(access, controller, tmp_path) for _ in range(2))
    controller.want("up", "gpu-1", "t1")

    def meanwhile(method: str, path: str) -> None:
        if method == "POST" and "gpu-1" not in api.pods:
            api.fault = lambda method, path: None
            other.once()

    api.fault = meanwhile
    one.once()
    uid = api.pods["gpu-1"]["metadata"]["uid"]
    controller.later(PATIENCE_S)
    for each in (one, other):
        each.once()
    assert api.pods["gpu-1"]["metadata"]["uid"] == uid
    assert controller.told() == {}
    controller.want("down", "gpu-1", "t2")
    one.once()
    other.once()
    assert api.pods == {}


def test_a_deletion_takes_no_pod_that_came_after(api: FakeApi, access: Access) -> None:
    old = api.has("gpu-1")["metadata"]["uid"]
    new = api.has("gpu-1")["metadata"]["uid"]
    Api(access).delete("gpu-1", old)
    assert api.pods["gpu-1"]["metadata"]["uid"] == new
    Api(access).delete("gpu-1", new)
    Api(access).delete("gpu-1", new)
    assert api.pods == {}


def test_a_bad_image(api: FakeApi, controller: Controller, access: Access, tmp_path: Path) -> None:
    rounds = started(access, controller, tmp_path)
    controller.want("up", "gpu-1", "t1")
    rounds.once()
    state = {"waiting": {"reason": "ErrImagePull", "message": 'not found: "worker"\nline 2'}}
    api.pods["gpu-1"]["status"] = {
        "containerStatuses": [{"name": "slurmd", "image": "worker", "state": state}]
    }
    rounds.once()
    assert controller.told() == {}
    controller.later(PATIENCE_S)
    rounds.once()
    assert controller.told() == {"gpu-1": "t1 ErrImagePull: not found: worker line 2"}
    assert api.pods == {}
    # slurmctld has not heard of it yet, and this program was killed.
    started(access, controller, tmp_path).once()
    assert api.pods == {}


def test_what_only_events_say(api: FakeApi, controller: Controller, rounds: ReconcileLoop) -> None:
    controller.want("up", "gpu-1", "t1")
    rounds.once()
    api.events = [{"type": "Warning", "reason": "FailedMount", "message": 'claim "jail" not found'}]
    controller.later(601)
    rounds.once()
    assert controller.told()["gpu-1"] == (
        "t1 its pod did not start within 10 min: FailedMount: claim jail not found"
    )
    assert api.pods == {}


def test_an_api_that_fails_is_asked_again_and_again_later(
    api: FakeApi, controller: Controller, rounds: ReconcileLoop
) -> None:
    controller.want("up", "gpu-1", "t1")
    api.fault = lambda method, path: (500, "etcd has no leader")
    pauses = [rounds.once() for _ in range(7)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    controller.later(601)
    rounds.once()
    assert controller.told()["gpu-1"] == "t1 Kubernetes has not answered for 10 min: 500 etcd has no leader"
    api.fault = lambda method, path: None
    api.has("gpu-1")
    rounds.once()
    assert api.pods == {}, "of a request that was given up no pod is left"


def test_a_silent_api_holds_nothing_up_for_ever(
    api: FakeApi, access: Access, controller: Controller, tmp_path: Path
) -> None:
    hasty = Access(access.url, access.namespace, access.token, access.authorities, limit_s=0.3)
    rounds = started(hasty, controller, tmp_path)
    controller.want("up", "gpu-1", "t1")
    api.fault = silent_after(30)
    began = time.monotonic()
    rounds.once()
    assert time.monotonic() - began < 3
    assert "timed out" in rounds.fault


def test_one_pod_that_fails_keeps_no_other_waiting(
    api: FakeApi, controller: Controller, rounds: ReconcileLoop
) -> None:
    for number in range(1, 6):
        controller.want("up", f"gpu-{number}", f"t{number}")
    api.fault = lambda method, path: (
        (500, "webhook") if method == "POST" and "gpu-1" not in api.pods else None
    )
    # The first two attempts fail, whichever pods they are for.
    failures = iter([(500, "webhook"), (500, "webhook")])
    api.fault = lambda method, path: next(failures, None) if method == "POST" else None
    rounds.once()
    assert len(api.pods) == 3


def test_a_stale_folder(api: FakeApi, controller: Controller, rounds: ReconcileLoop) -> None:
    api.has("gpu-1")
    controller.now += STALE_S + 1
    rounds.once()
    assert (set(api.pods), api.asked) == ({"gpu-1"}, [])
    controller.asks()
    rounds.once()
    assert api.pods == {}


def test_a_template_that_is_half_there(api: FakeApi, controller: Controller, rounds: ReconcileLoop) -> None:
    controller.want("up", "gpu-1", "t1")
    rounds.once()
    (rounds.templates / "gpu.json").write_text('{"metadata": {')
    controller.want("up", "gpu-2", "t2")
    rounds.once()
    assert set(api.pods) == {"gpu-1", "gpu-2"}, "the one of before goes on"


def test_long_lists_and_strange_answers(api: FakeApi, access: Access) -> None:
    for number in range(7):
        api.has(f"gpu-{number}")
    api.page = 3
    found = Api(access).pods("cellblock.org/on-demand=yes")
    assert [one["metadata"]["name"] for one in found] == [f"gpu-{number}" for number in range(7)]
    api.fault = lambda method, path: (401, "Unauthorized")
    with pytest.raises(Fault, match="401 Unauthorized"):
        Api(access).pods("x=y")
    api.fault = lambda method, path: (403, 'pods is forbidden: User "x"')
    with pytest.raises(Refused, match="forbidden"):
        Api(access).pods("x=y")


def test_what_is_no_request(controller: Controller) -> None:
    for name, text in {
        ".gpu-1.17": "up t",
        "gpu-1": "",
        "gpu-2": "away t",
        "UP": "up t",
        "gpu-3": "up",
    }.items():
        (controller.folder / "wanted" / name).write_text(text)
    assert read_requests(controller.folder, controller.now).nodes == {}
    assert read_requests(controller.folder / "none", 1.0).age_s is None


def test_reasons_are_plain_lines() -> None:
    assert one_line('a "b"\n\tc [d@9] é \x1b[0m') == "a b c d@9 0m"
    assert len(one_line("x" * 1000)) == 300
