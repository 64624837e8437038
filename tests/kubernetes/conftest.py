# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes of two nodes for the tests here; where there is none, they are skipped and say why."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from cellblock.bench import real_kubernetes
from cellblock.bench.real_kubernetes import program, running_kubernetes, why_not
from cellblock.paths import PROJECT

if TYPE_CHECKING:
    from tests.kubernetes.page_cluster import PageCluster
    from tests.kubernetes.small_cluster import Site

# Nodes on demand: the program lies in an image, and is imported from there.
sys.path.insert(0, str(PROJECT / "images/node-pods/files/usr/lib/python3/dist-packages"))

_TIMEOUT_S = 180
_skipped: list[str] = []


@dataclass(frozen=True)
class Kubernetes(real_kubernetes.Kubernetes):
    """A running Kubernetes, with what tests ask of it."""

    def end_of(self, job: str, namespace: str) -> tuple[bool, str, str]:
        """Waits for a Job: whether it succeeded, the log of its last pod, and that pod's node."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            status = self.get(f"job/{job}", f"--namespace={namespace}")["status"]
            ended = [each["type"] for each in status.get("conditions", ()) if each["status"] == "True"]
            pods = self.get("pods", f"--namespace={namespace}", f"--selector=job-name={job}")["items"]
            if ended or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        if not ended:
            events = self("get", "events", f"--namespace={namespace}")
            pytest.fail(f"job {job} has not ended after {_TIMEOUT_S} s:\n{status}\n{events}")
        pod = max(pods, key=lambda each: each["metadata"]["creationTimestamp"])
        log = self("logs", f"--namespace={namespace}", pod["metadata"]["name"])
        return "Complete" in ended, log, pod["spec"]["nodeName"]

    def succeeds(self, job: str, namespace: str) -> str:
        """The log of a Job that must succeed."""
        succeeded, log, _ = self.end_of(job, namespace)
        assert succeeded, log
        return log


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    found = program()
    if found is None:
        _skipped.append(why_not())
        pytest.skip(f"NOT RUN on a real Kubernetes: {why_not()}")
    with running_kubernetes(found, tmp_path_factory.mktemp("kubernetes")) as one:
        yield Kubernetes(one.program, one.folder, one.configuration)


@pytest.fixture(scope="session")
def cluster(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageCluster]:
    """The cluster of docs/kubernetes.md; tests leave it with two idle nodes."""
    # Imports this module.
    from tests.kubernetes.page_cluster import typed_cluster

    with typed_cluster(kubernetes, tmp_path_factory.mktemp("page")) as one:
        yield one


def machine_address(kubernetes: Kubernetes) -> str:
    """The address of the machine that all nodes are."""
    (node, *_) = kubernetes.get("nodes")["items"]
    (found,) = [one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP"]
    return str(found)


@pytest.fixture(scope="session")
def small(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A cluster with accounting, metrics and two workers, for tests that leave it as it was."""
    # Imports this module.
    from tests.kubernetes.small_cluster import ROLES, SMALL, bring_images, running_cluster

    text = f"""\
name: small
accounting: {{}}
metrics: {{interval: 5}}
jail: {{root: operator}}
node_sets:
  - {{name: worker, count: 2, {SMALL}}}
"""
    closed = f"  closed_to_jobs: [{machine_address(kubernetes)}/32]\n"
    bring_images(kubernetes, (*ROLES, "accounting", "database", "metrics"))
    with running_cluster(kubernetes, tmp_path_factory.mktemp("small"), text, "small", more=closed) as one:
        one.until("two nodes", lambda: [one.node(f"worker-{n}")[0] for n in (0, 1)] == ["idle"] * 2)
        yield one


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say it once more, where it is read."""
    if _skipped:
        terminalreporter.section("NOT RUN on a real Kubernetes", red=True)
        terminalreporter.write_line(f"tests/kubernetes: nothing was applied to a cluster: {_skipped[0]}")
