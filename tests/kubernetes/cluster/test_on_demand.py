# SPDX-License-Identifier: Apache-2.0
"""Nodes on demand on a real Kubernetes: from no node to a job and back, and what users hear of faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from cellblock.cluster.proof_user import PROOF_USER
from tests.kubernetes.helpers.failing_api import api_that_answers_500, api_that_is_silent
from tests.kubernetes.helpers.kubernetes import Kubernetes
from tests.kubernetes.helpers.small_cluster import ROLES, SMALL, Site, bring_images, running_cluster

pytestmark = pytest.mark.integration

SPACE = "demand"
_START_S = 60
# Of sets whose nodes cannot be had.
_SOON_S = 20
# A job has a /tmp of its own.
_SAID = f"/home/{PROOF_USER}/hosts"
_ON_DEMAND = f"on_demand: {{idle_after: 20s, start_within: {_START_S}s}}"
_SOON = f"on_demand: {{idle_after: 20s, start_within: {_SOON_S}s}}"
_FILE = f"""\
name: demand
node_sets:
  - {{name: burst, count: 3, {SMALL}, {_ON_DEMAND}}}
  - {{name: soon, {SMALL}, {_SOON}}}
  - {{name: late, {SMALL}, {_SOON}}}
  - {{name: wrong, image: missing, {SMALL}, {_SOON}}}
  - {{name: huge, resources: {{cpu: 1, memory: 512Mi}}, requests: {{cpu: "900", memory: 64Mi}}, {_SOON}}}
partitions:
  - {{name: main, default: true, node_sets: [burst]}}
  - {{name: soon, node_sets: [soon]}}
  - {{name: late, node_sets: [late]}}
  - {{name: wrong, node_sets: [wrong]}}
  - {{name: huge, node_sets: [huge]}}
"""


@pytest.fixture(scope="module")
def site(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    bring_images(kubernetes, (*ROLES, "node-pods"))
    with running_cluster(kubernetes, tmp_path_factory.mktemp("demand"), _FILE, SPACE) as one:
        yield one


def pods(site: Site) -> set[str]:
    """The pods of nodes on demand."""
    found = site.kubernetes.get("pods", f"--namespace={SPACE}", "--selector=cellblock.org/on-demand=yes")
    return {one["metadata"]["name"] for one in found["items"]}


def test_from_no_node_to_a_job_and_back(site: Site) -> None:
    assert pods(site) == set()
    assert site.node("burst-1")[0] == "idle~", "what could be there is shown"
    job = site.submit("--nodes=2", "--wrap", f"srun hostname >{_SAID}; sleep 1000")
    site.until("a running job", lambda: site.job(job)["JobState"] == "RUNNING")
    site.until(
        "two hosts",
        lambda: site.jail("sh", "-c", f"sort {_SAID} 2>/dev/null || true").split() == ["burst-1", "burst-2"],
    )
    # A slurmctld that has just started, with an empty folder, wants no node to go.
    site.kubernetes("delete", "pod", "controller-0", f"--namespace={SPACE}")
    site.until("slurmctld", site.acts)
    site.until("both nodes", lambda: site.node("burst-1")[0] == site.node("burst-2")[0] == "allocated")
    assert site.job(job)["JobState"] == "RUNNING"
    assert pods(site) == {"burst-1", "burst-2"}
    site.slurm("scancel", job)
    site.until("no pod", lambda: not pods(site))
    site.until("nodes that can be woken", lambda: site.node("burst-1")[0] == "idle~")


def _is_down(site: Site, node: str, why: str) -> None:
    """Who looks at nodes reads why; half a minute later it is given back."""
    site.until("a node that is down", lambda: site.node(node)[0].startswith("down"), 2 * _SOON_S + 90)
    reason = site.node(node)[1]
    assert reason.startswith("[cellblock:pod] ")
    assert why in reason


def _is_told(site: Site, job: str, node: str, why: str) -> None:
    """The job waits, and says why; it is withdrawn."""
    site.until("the job's reason", lambda: "AdminComment" in site.job(job), 2 * _SOON_S + 90)
    said = site.job(job)
    assert said["JobState"] == "PENDING"
    assert f"node {node} could not be had: " in said["AdminComment"]
    assert why in said["AdminComment"]
    site.slurm("scancel", job)


def test_a_wrong_image_and_a_machine_that_is_nowhere_are_told_to_the_user(site: Site) -> None:
    jobs = {name: site.submit(f"--partition={name}", "--wrap", "true") for name in ("wrong", "huge")}
    _is_down(site, "wrong-1", "missing:debian13")
    _is_told(site, jobs["wrong"], "wrong-1", "missing:debian13")
    _is_told(site, jobs["huge"], "huge-1", "Insufficient cpu")
    site.until("no pod", lambda: not pods(site))


@pytest.mark.parametrize(
    ("failing", "name", "said"),
    [(api_that_answers_500, "soon", "500 the test says so"), (api_that_is_silent, "late", "timed out")],
    ids=["500", "silent"],
)
def test_an_api_that_fails_is_told_to_the_user_and_no_pod_is_left(
    failing: Callable[[Kubernetes, str], AbstractContextManager[None]], name: str, said: str, site: Site
) -> None:
    address = site.kubernetes.get("pod/controller-0", f"--namespace={SPACE}")["status"]["podIP"]
    with failing(site.kubernetes, address):
        job = site.submit(f"--partition={name}", "--wrap", "true")
        _is_down(site, f"{name}-1", said)
        _is_told(site, job, f"{name}-1", said)
    site.until("no pod", lambda: not pods(site))


def test_the_container_that_makes_pods_is_killed(site: Site) -> None:
    def kill() -> None:
        # Not this shell, which has the pattern as an argument.
        look = "grep -qs '[c]ellblock_node_pods' $p/cmdline"
        find = f"for p in /proc/[0-9]*; do {look} && kill -9 ${{p#/proc/}}; done; :"
        # The container may end before it has said how this ended.
        where = (f"--namespace={SPACE}", "controller-0", "--container=node-pods")
        assert site.kubernetes.run("exec", *where, "--", "sh", "-c", find).returncode in (0, 137)

    def started_again() -> int:
        status = site.kubernetes.get("pod/controller-0", f"--namespace={SPACE}")["status"]
        return sum(one["restartCount"] for one in status["containerStatuses"] if one["name"] == "node-pods")

    before = started_again()
    kill()
    job = site.submit("--wrap", "sleep 1000")
    site.until("a running job", lambda: site.job(job)["JobState"] == "RUNNING")
    assert started_again() > before
    site.slurm("scancel", job)
    kill()
    site.until("no pod", lambda: not pods(site), 180)
    site.until("a node that can be woken", lambda: site.node("burst-1")[0] == "idle~")


def test_a_pod_with_a_job_that_goes(site: Site) -> None:
    job = site.submit("--wrap", "sleep 1000")
    site.until("a running job", lambda: site.job(job)["JobState"] == "RUNNING")
    (node,) = pods(site)
    site.kubernetes("delete", "pod", node, f"--namespace={SPACE}", "--grace-period=0", "--force")
    site.until("a job that waits", lambda: site.job(job)["JobState"] == "PENDING")
    assert "its pod is gone" in site.job(job)["AdminComment"]
    site.slurm("scancel", job)


def test_nodes_that_could_not_be_had_are_given_back(site: Site) -> None:
    """By themselves, half a minute after each failure of the tests above."""
    for node in ("wrong-1", "huge-1", "soon-1", "late-1", "burst-1"):
        site.until(f"{node} is given back", lambda node=node: site.node(node)[0] == "idle~", 180)  # type: ignore[misc]
    assert not pods(site)


def test_the_rights_are_those_of_pods(site: Site) -> None:
    def may(*what: str) -> bool:
        who = f"--as=system:serviceaccount:{SPACE}:controller"
        return site.kubernetes.run("auth", "can-i", who, *what).stdout.strip() == "yes"

    own = f"--namespace={SPACE}"
    assert all(may(verb, "pods", own) for verb in ("create", "delete", "get", "list"))
    assert may("list", "events", own)
    for what in (("secrets",), ("configmaps",), ("pods", "--subresource=exec"), ("statefulsets.apps",)):
        assert not any(may(verb, *what, own) for verb in ("get", "list", "create", "delete")), what
    assert not may("list", "pods", "--namespace=kube-system")
    assert not may("list", "nodes")
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    assert site.slurm("sh", "-c", f"test ! -e {token} && echo none") == "none\n"
