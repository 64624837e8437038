# SPDX-License-Identifier: Apache-2.0
"""The program that makes pods of nodes on demand, against a real API server, with faults of all kinds.

Slurm is not here: the tests write its requests. The pods sleep.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cellblock_node_pods import decide
from cellblock_node_pods.api import Access, Api
from cellblock_node_pods.node_requests import tell
from cellblock_node_pods.reconcile_loop import ReconcileLoop

from cellblock.paths import PROJECT
from tests.kubernetes.helpers.kubernetes import Kubernetes
from tests.kubernetes.helpers.small_cluster import bring_images, own_name
from tests.node_pods.faulty_proxy import FaultyProxy, proxy

pytestmark = pytest.mark.integration

SPACE = "node-pods"
_PACKAGE = PROJECT / "images/node-pods/files/usr/lib/python3/dist-packages"
_SELECTOR = "app.kubernetes.io/instance=test,cellblock.org/on-demand=yes"
_START_S = 20


@dataclass
class Slurm:
    """The folder by which Slurm says what it wants."""

    kubernetes: Kubernetes
    folder: Path
    proxy: FaultyProxy

    def want(self, state: str, *nodes: str) -> None:
        """New requests, all of them by the same token."""
        (self.folder / "requests/wanted").mkdir(parents=True, exist_ok=True)
        for node in nodes:
            (self.folder / "requests/wanted" / node).write_text(f"{state} {time.time()}\n")
        self.asked()

    def asked(self) -> None:
        (self.folder / "requests/fresh").touch()

    def told(self) -> dict[str, str]:
        """Node -> the reason for which it was given up."""
        place = self.folder / "requests/told"
        found = place.glob("[a-z]*") if place.is_dir() else ()
        return {one.name: one.read_text().partition(" ")[2].strip() for one in found}

    def pods(self) -> dict[str, Any]:
        found = self.kubernetes.get("pods", f"--namespace={SPACE}", f"--selector={_SELECTOR}")["items"]
        return {one["metadata"]["name"]: one for one in found}

    def until(self, what: str, condition: Callable[[], bool], seconds: float = 60) -> None:
        def met() -> bool:
            self.asked()
            return condition()

        self.kubernetes.wait(what, met, seconds)

    def rounds(self, limit_s: float = 10) -> ReconcileLoop:
        access = Access(self.proxy.url, SPACE, self.folder / "token", self.folder / "none", limit_s)
        requests, templates = self.folder / "requests", self.folder / "templates"
        return ReconcileLoop(Api(access), requests, templates, _SELECTOR, "nodes")

    @contextmanager
    def program(self) -> Iterator[subprocess.Popen[bytes]]:
        """The program as its container runs it."""
        environment = {
            "PYTHONPATH": str(_PACKAGE),
            "CELLBLOCK_CLUSTER": "test",
            "CELLBLOCK_NAMESPACE": SPACE,
            "CELLBLOCK_NODE_PODS": str(self.folder / "requests"),
            "CELLBLOCK_TEMPLATES": str(self.folder / "templates"),
            "CELLBLOCK_API": self.proxy.url,
            "CELLBLOCK_TOKEN": str(self.folder),
        }
        with subprocess.Popen([sys.executable, "-m", "cellblock_node_pods"], env=environment) as one:
            try:
                yield one
            finally:
                one.kill()


def template(image: str, **more: Any) -> str:
    container = {"name": "slurmd", "image": image, "command": ["sleep", "3000"], **more}
    meta = {
        "labels": {"app.kubernetes.io/instance": "test"},
        "annotations": {"cellblock.org/start-within": str(_START_S)},
    }
    return json.dumps(
        {"metadata": meta, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    )


@pytest.fixture(scope="module")
def image(kubernetes: Kubernetes) -> str:
    bring_images(kubernetes, ("node-pods",), jail=False)
    kubernetes.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    return own_name("node-pods")


@pytest.fixture
def slurm(
    kubernetes: Kubernetes, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Slurm]:
    monkeypatch.setattr(decide, "PATIENCE_S", 5.0)
    templates = tmp_path / "templates"
    templates.mkdir()
    (templates / "good.json").write_text(template(image))
    (templates / "wrong.json").write_text(template("localhost/cellblock/missing:1"))
    (templates / "huge.json").write_text(template(image, resources={"requests": {"cpu": "900"}}))
    (templates / "config.json").write_text(template(image, envFrom=[{"secretRef": {"name": "missing"}}]))
    (templates / "crash.json").write_text(template(image, command=["sh", "-c", "exit 3"]))
    (tmp_path / "token").write_text("unused")
    command = [
        f"{kubernetes.folder}/bin/kubectl",
        f"--kubeconfig={kubernetes.configuration}",
        "proxy",
        "--port=0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as passing:
        try:
            assert passing.stdout
            where = passing.stdout.readline().split()[-1]
            with proxy(f"http://{where}") as one:
                yield Slurm(kubernetes, tmp_path, one)
        finally:
            passing.kill()
    kubernetes("delete", "pods", f"--namespace={SPACE}", "--all", "--grace-period=0", "--force")


def test_two_programs_at_once_make_each_pod_once_and_leave_none(slurm: Slurm) -> None:
    nodes = [f"good-{number}" for number in range(1, 11)]
    with slurm.program(), slurm.program():
        slurm.want("up", *nodes)
        slurm.until("ten pods", lambda: set(slurm.pods()) == set(nodes))
        uids = {one["metadata"]["uid"] for one in slurm.pods().values()}

        def ready() -> bool:
            states = [
                one["status"].get("containerStatuses", [{}])[0].get("ready") for one in slurm.pods().values()
            ]
            return states == [True] * 10

        slurm.until("ten ready pods", ready, _START_S * 3)
        assert {one["metadata"]["uid"] for one in slurm.pods().values()} == uids
        assert slurm.pods()["good-3"]["spec"]["hostname"] == "good-3"
        slurm.want("down", *nodes)
        slurm.until("no pods", lambda: not slurm.pods())
    assert slurm.told() == {}


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("wrong-1", "missing:1"),
        ("huge-1", "Insufficient cpu"),
        ("config-1", "secret missing not found"),
        ("crash-1", "container slurmd ends again and again: Error, exit code 3"),
    ],
)
def test_pods_that_cannot_start_are_given_up_with_kubernetes_reason(
    slurm: Slurm, node: str, reason: str
) -> None:
    rounds = slurm.rounds()
    slurm.want("up", node)

    def given_up() -> bool:
        rounds.once()
        return node in slurm.told()

    # Crashes are one when the kubelet waits before the next, 10 s later.
    slurm.until("the reason", given_up, _START_S + 30)
    assert reason in slurm.told()[node]
    slurm.until("no pod", lambda: not slurm.pods())


def test_a_pod_that_a_person_deletes(slurm: Slurm) -> None:
    rounds = slurm.rounds()
    slurm.want("up", "good-1")
    rounds.once()
    path = slurm.folder / "requests/wanted/good-1"
    path.write_text(path.read_text().replace("up", "serves"))
    rounds.once()
    slurm.kubernetes("delete", "pod", "good-1", f"--namespace={SPACE}")
    # Started anew, it knows of nothing.
    slurm.rounds().once()
    assert slurm.told() == {"good-1": "its pod is gone: somebody removed it, or its machine"}
    assert slurm.pods() == {}


@pytest.mark.parametrize(
    ("status", "silent_s", "reason"), [(500, 0.0, "500 the proxy says so"), (0, 3.0, "timed out")]
)
def test_an_api_that_fails_or_is_silent(slurm: Slurm, status: int, silent_s: float, reason: str) -> None:
    rounds = slurm.rounds(limit_s=1)
    slurm.proxy.status, slurm.proxy.silent_s = status, silent_s
    slurm.want("up", "good-1")

    def given_up() -> bool:
        assert rounds.once() <= 30
        return "good-1" in slurm.told()

    slurm.until("the reason", given_up, _START_S + 15)
    assert slurm.told()["good-1"].startswith("Kubernetes has not answered for ")
    assert reason in slurm.told()["good-1"]
    slurm.proxy.status, slurm.proxy.silent_s = 0, 0
    time.sleep(silent_s)
    rounds.once()
    slurm.until("no pod", lambda: not slurm.pods())


def test_killed_when_the_api_has_made_the_pod_and_not_said_so(slurm: Slurm) -> None:
    killed = threading.Event()

    with slurm.program() as one:

        def kill(method: str) -> None:
            if method == "POST" and not killed.is_set():
                os.kill(one.pid, signal.SIGKILL)
                killed.set()

        slurm.proxy.before_answer = kill
        slurm.want("up", "good-1")
        assert killed.wait(30)
        one.wait(10)
    uid = slurm.pods()["good-1"]["metadata"]["uid"]
    with slurm.program():
        time.sleep(3)
        slurm.asked()
        assert slurm.pods()["good-1"]["metadata"]["uid"] == uid
        slurm.want("down", "good-1")
        slurm.until("no pods", lambda: not slurm.pods())
    assert slurm.told() == {}


def test_killed_when_slurm_was_told_and_the_pod_is_left(slurm: Slurm) -> None:
    slurm.want("up", "wrong-1")
    slurm.rounds().once()
    token = (slurm.folder / "requests/wanted/wrong-1").read_text().split()[1]
    tell(slurm.folder / "requests", "wrong-1", token, "no image")
    with slurm.program():
        slurm.until("no pods", lambda: not slurm.pods())
    assert slurm.told() == {"wrong-1": "no image"}
