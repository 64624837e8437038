# SPDX-License-Identifier: Apache-2.0
"""Other releases of Slurm, auth/slurm and two controllers on a real Kubernetes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cellblock.cluster.proof_user import PROOF_USER
from tests.kubernetes.helpers.kubernetes import Kubernetes
from tests.kubernetes.helpers.small_cluster import ROLES, SMALL, Site, bring_images, running_cluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not os.environ.get("CELLBLOCK_KUBERNETES_RELEASES"),
        reason="minutes for each: `build.py test --thorough` sets CELLBLOCK_KUBERNETES_RELEASES",
    ),
]


@dataclass(frozen=True)
class Asked:
    """A cluster of this file."""

    space: str
    variant: str
    release: str
    lines: str = ""


_CLUSTERS = [
    Asked("oldest", "debian12", "22.05"),
    Asked("newest", "debian14", "26.05"),
    Asked("own-auth", "debian13", "24.11", "auth: slurm\n"),
    Asked("two", "debian13", "24.11", "controller: {replicas: 2}\n"),
]


@pytest.fixture(scope="module", params=_CLUSTERS, ids=lambda one: one.space)
def cluster(
    request: pytest.FixtureRequest, kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Asked, Site]]:
    asked: Asked = request.param
    bring_images(kubernetes, ROLES, asked.variant)
    text = f"name: {asked.space}\n{asked.lines}node_sets:\n  - {{name: cpu, count: 2, {SMALL}}}\n"
    folder = tmp_path_factory.mktemp(asked.space)
    with running_cluster(kubernetes, folder, text, asked.space, asked.variant) as site:
        yield asked, site


def test_a_job_over_two_nodes_in_the_jail(cluster: tuple[Asked, Site]) -> None:
    asked, site = cluster
    assert site.slurm("slurmctld", "-V").split()[-1].startswith(asked.release)
    site.until("two nodes", lambda: [site.node(f"cpu-{n}")[0] for n in (0, 1)] == ["idle"] * 2)
    show = '. /etc/os-release; echo "$(hostname) $ID"'
    said = site.jail("srun", "--nodes=2", "--chdir=/tmp", "sh", "-c", show)
    assert sorted(said.splitlines()) == ["cpu-0 debian", "cpu-1 debian"]


def test_a_session_is_told_when_its_login_node_ends(cluster: tuple[Asked, Site]) -> None:
    """A terminal of a user's, as sshd makes one, in the login node's own PID namespace."""
    _, site = cluster
    outer, inner = pty.openpty()
    kubernetes = site.kubernetes
    first = kubernetes.get("pod/login-0", f"--namespace={site.space}")["metadata"]["uid"]
    enter = ("jail-enter", "--plan", "/etc/cellblock/jail.fstab", "--user", PROOF_USER, "--", "sleep", "1017")
    command = (f"{kubernetes.folder}/bin/kubectl", f"--kubeconfig={kubernetes.configuration}", "exec")
    where = ("--stdin", "--tty", f"--namespace={site.space}", "login-0", "--", *enter)
    with subprocess.Popen([*command, *where], stdin=inner, stdout=inner, stderr=inner) as session:
        os.close(inner)
        try:
            # The login node's own programs sleep, too; and this finds no command line of its own.
            look = ("sh", "-c", "grep -lxz '[1]017' /proc/[0-9]*/cmdline || true")
            site.until("the session", lambda: kubernetes.inside("login-0", *look, namespace=site.space) != "")
            kubernetes("delete", "pod", "login-0", f"--namespace={site.space}", "--wait=false")
            said = b""
            while b"This login node ends" not in said:
                said += os.read(outer, 4096)
        finally:
            session.kill()
            os.close(outer)
    site.until("another login node", lambda: _other_is_ready(site, first), 180)


def _other_is_ready(site: Site, first: str) -> bool:
    found = site.kubernetes.run("get", "pod/login-0", f"--namespace={site.space}", "--output=json")
    if found.returncode:
        return False
    pod = json.loads(found.stdout)
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
    return bool(pod["metadata"]["uid"] != first and conditions.get("Ready") == "True")


def test_of_two_controllers_the_second_goes_on(cluster: tuple[Asked, Site]) -> None:
    asked, site = cluster
    if "replicas: 2" not in asked.lines:
        pytest.skip("one controller")
    site.until("the second one", lambda: "UP" in site.slurm("scontrol", "ping").splitlines()[-1])
    kubernetes = site.kubernetes
    job = site.submit("--nodes=2", "--wrap", "sleep 1000")
    site.until("a running job", lambda: site.job(job)["JobState"] == "RUNNING")
    kubernetes("cordon", "node-1")
    kubernetes("cordon", "node-2")
    try:
        # Its successor finds no machine.
        kubernetes("delete", "pod", "controller-0", f"--namespace={site.space}")
        ask = (
            "exec",
            f"--namespace={site.space}",
            "controller-1",
            "--container=slurmctld",
            "--",
            "squeue",
            "-h",
        )

        def goes_on() -> bool:
            done = kubernetes.run(*ask)
            return done.returncode == 0 and job in done.stdout

        site.until("the second controller", goes_on, 180)
    finally:
        kubernetes("uncordon", "node-1")
        kubernetes("uncordon", "node-2")
    site.until("the first controller", site.acts)
    assert site.job(job)["JobState"] == "RUNNING"
    site.slurm("scancel", job)
