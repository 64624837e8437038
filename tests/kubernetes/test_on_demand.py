# SPDX-License-Identifier: Apache-2.0
"""Nodes on demand on a real Kubernetes: from no node to a job and back, and what users hear of faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cellblock.bench.kubernetes import render_to, volumes
from cellblock.bench.real_kubernetes import HOST, older_folder
from cellblock.bench.registry import push, registry
from cellblock.build import BuildRequest, build_images
from cellblock.cluster.proof_user import ENSURE_SCRIPT, PROOF_USER
from cellblock.events import Events
from tests.kubernetes.conftest import Kubernetes

pytestmark = pytest.mark.integration

SPACE = "demand"
_ROLES = ("controller", "worker", "login", "jail-init", "node-pods")
_START_S = 60
# A job has a /tmp of its own.
_SAID = f"/home/{PROOF_USER}/hosts"
_NODE = "resources: {cpu: 1, memory: 512Mi}, requests: {cpu: 50m, memory: 64Mi}, grace: 10s"
_FILE = f"""\
name: demand
variant: debian13
node_sets:
  - {{name: burst, count: 3, {_NODE}, on_demand: {{idle_after: 20s, start_within: {_START_S}s}}}}
  - {{name: wrong, image: missing, {_NODE}, on_demand: {{idle_after: 20s, start_within: {_START_S}s}}}}
partitions:
  - {{name: main, default: true, node_sets: [burst]}}
  - {{name: wrong, node_sets: [wrong]}}
kubernetes:
  namespace: {SPACE}
  registry: localhost/cellblock
  images: {{jail: "@JAIL@"}}
  cgroup: disabled
  jail: {{size: 1Gi, storage_class: by-hand, plain_http: true}}
  state: {{size: 1Gi, storage_class: by-hand}}
  database: {{size: 1Gi, storage_class: by-hand}}
"""


@dataclass(frozen=True)
class Site:
    """The cluster."""

    kubernetes: Kubernetes

    def slurm(self, *command: str) -> str:
        return self.kubernetes.inside("controller-0", *command, container="slurmctld", namespace=SPACE)

    def jail(self, *command: str, user: str = PROOF_USER) -> str:
        enter = ("jail-enter", "--plan", "/etc/cellblock/jail.fstab", "--user", user, "--")
        return self.kubernetes.inside("login-0", *enter, *command, namespace=SPACE)

    def submit(self, *options: str) -> str:
        return self.jail("sbatch", "--parsable", "--chdir=/tmp", "--output=/dev/null", *options).strip()

    def job(self, number: str) -> dict[str, str]:
        said = self.slurm("scontrol", "show", "job", number)
        fields = (
            each.partition("=") for line in said.splitlines() for each in line.strip().split(" ", 1)[:1]
        )
        found = {key: value for key, _, value in fields}
        for line in said.splitlines():
            if line.strip().startswith("AdminComment="):
                found["AdminComment"] = line.strip().removeprefix("AdminComment=")
        return found

    def node(self, name: str) -> tuple[str, str]:
        """State and reason."""
        said = self.slurm("sinfo", "--noheader", "--Node", f"--nodes={name}", "--format=%T|%E").splitlines()[
            0
        ]
        state, _, reason = said.partition("|")
        return state, reason

    def pods(self) -> set[str]:
        found = self.kubernetes.get("pods", f"--namespace={SPACE}", "--selector=cellblock.org/on-demand=yes")
        return {one["metadata"]["name"] for one in found["items"]}

    def until(self, what: str, condition: object, seconds: float = 120) -> None:
        self.kubernetes.wait(what, condition, seconds)


@pytest.fixture(scope="module")
def site(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("demand")
    build_images(BuildRequest((*_ROLES, "jail"), "debian13", load=True), Events())
    kubernetes.load([f"localhost/cellblock/{name}:debian13" for name in _ROLES])
    made = volumes(folder / "volumes")
    for one in made:
        one["metadata"]["name"] += f"-{SPACE}"
        one["spec"]["claimRef"]["namespace"] = SPACE
    with registry(folder, (), HOST) as host:
        jail = f"{host}/cellblock/jail:debian13"
        push("containers-storage:localhost/cellblock/jail:debian13", f"docker://{jail}")
        kubernetes.apply(*made)
        path = folder / "cluster.yaml"
        path.write_text(_FILE.replace("@JAIL@", jail))
        render_to(path, folder / "rendered")
        older = older_folder(folder / "rendered", folder / "older")
        kubernetes("apply", f"--filename={older}/namespace.yaml", f"--filename={older}/secrets.yaml")
        kubernetes("apply", f"--kustomize={older}")
        for name in ("login", "controller"):
            kubernetes("rollout", "status", f"--namespace={SPACE}", "--timeout=4m", f"statefulset/{name}")
        cluster = Site(kubernetes)
        cluster.jail("sh", "-c", ENSURE_SCRIPT, PROOF_USER, user="root")
        cluster.until("the user", lambda: PROOF_USER in cluster.slurm("getent", "passwd"))
        yield cluster
        kubernetes("delete", "namespace", SPACE, "--wait=false")


def test_from_no_node_to_a_job_and_back(site: Site) -> None:
    assert site.pods() == set()
    assert site.node("burst-1")[0] == "idle~", "what could be there is shown"
    job = site.submit("--nodes=2", "--wrap", f"srun hostname >{_SAID}; sleep 1000")
    site.until("a running job", lambda: site.job(job)["JobState"] == "RUNNING")
    site.until(
        "two hosts",
        lambda: site.jail("sh", "-c", f"sort {_SAID} 2>/dev/null || true").split() == ["burst-1", "burst-2"],
    )
    # A slurmctld that has just started, with an empty folder, wants no node to go.
    site.kubernetes("delete", "pod", "controller-0", f"--namespace={SPACE}")
    site.until(
        "slurmctld",
        lambda: (
            site.kubernetes.run(
                "exec",
                f"--namespace={SPACE}",
                "controller-0",
                "--container=slurmctld",
                "--",
                "scontrol",
                "ping",
            ).returncode
            == 0
        ),
    )
    site.until("both nodes", lambda: site.node("burst-1")[0] == site.node("burst-2")[0] == "allocated")
    assert site.job(job)["JobState"] == "RUNNING"
    assert site.pods() == {"burst-1", "burst-2"}
    site.slurm("scancel", job)
    site.until("no pod", lambda: not site.pods())
    site.until("nodes that can be woken", lambda: site.node("burst-1")[0] == "idle~")


def test_a_wrong_image_is_told_to_the_user_and_tried_again(site: Site) -> None:
    job = site.submit("--partition=wrong", "--wrap", "true")
    site.until("a node that is down", lambda: site.node("wrong-1")[0].startswith("down"), 2 * _START_S + 60)
    assert site.node("wrong-1")[1].startswith("[cellblock:pod] ")
    assert "missing:debian13" in site.node("wrong-1")[1]
    said = site.job(job)
    assert said["JobState"] == "PENDING"
    assert "node wrong-1 could not be had: " in said["AdminComment"]
    assert "missing:debian13" in said["AdminComment"]
    site.until("no pod", lambda: not site.pods())
    site.slurm("scancel", job)
    site.until("a node that is given back", lambda: site.node("wrong-1")[0] == "idle~", 180)


def test_a_pod_with_a_job_that_goes(site: Site) -> None:
    job = site.submit("--wrap", "sleep 1000")
    site.until("a running job", lambda: site.job(job)["JobState"] == "RUNNING")
    (node,) = site.pods()
    site.kubernetes("delete", "pod", node, f"--namespace={SPACE}", "--grace-period=0", "--force")
    site.until("a job that waits", lambda: site.job(job)["JobState"] == "PENDING")
    assert "its pod is gone" in site.job(job)["AdminComment"]
    site.until("a node that is given back", lambda: site.node(node)[0] == "idle~", 180)
    site.slurm("scancel", job)


def test_the_rights_are_those_of_pods(site: Site) -> None:
    def may(*what: str) -> bool:
        who = f"--as=system:serviceaccount:{SPACE}:controller"
        return site.kubernetes.run("auth", "can-i", who, *what).stdout.strip() == "yes"

    own = f"--namespace={SPACE}"
    assert all(may(verb, "pods", own) for verb in ("create", "delete", "get", "list"))
    assert may("list", "events", own)
    for what in ("secrets", "configmaps", "pods/exec", "statefulsets.apps"):
        assert not any(may(verb, what, own) for verb in ("get", "list", "create", "delete"))
    assert not may("list", "pods", "--namespace=kube-system")
    assert not may("list", "nodes")
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    assert site.slurm("sh", "-c", f"test ! -e {token} && echo none") == "none\n"
