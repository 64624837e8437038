# SPDX-License-Identifier: Apache-2.0
"""docs/kubernetes.md typed line by line on a real Kubernetes of two nodes: from an empty namespace to jobs.

The objects of Kubernetes 1.20 are made from the rendered ones (cellblock/kubernetes/older.py), after each
`render` that the page types.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from cellblock.bench.kubernetes import ROLES, volumes
from cellblock.bench.real_kubernetes import HOST, older_folder
from cellblock.bench.registry import push, registry
from cellblock.build import BuildRequest, build_images
from cellblock.events import Events
from cellblock.paths import PROJECT
from tests.documented import Block, blocks_for
from tests.kubernetes.conftest import Kubernetes

pytestmark = pytest.mark.integration

PAGE = "kubernetes.md"
_TEST = "test_the_page_leads_to_a_job_over_two_nodes"
# What the page types is for machines that a node has for itself; here are two processors for all of it.
_SMALL = "resources: {cpu: 2, memory: 512Mi}, requests: {cpu: 50m, memory: 64Mi}, grace: 30s"


@dataclass
class Site:
    """A folder in which the page is typed."""

    kubernetes: Kubernetes
    folder: Path
    jail: str
    """The jail's image in a registry."""

    def type(self, line: str) -> str:
        """Run a line of the page; returns what it prints."""
        line = line.replace("python3 build.py", f"{sys.executable} -m cellblock.cli")
        path = f"{self.kubernetes.folder}/bin:{os.environ['PATH']}"
        environment = {
            **os.environ,
            "PATH": path,
            "KUBECONFIG": self.kubernetes.configuration,
            "PYTHONPATH": str(PROJECT),
        }
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        if not (line.startswith("kubectl diff") and done.returncode == 1):
            pods = self.kubernetes.run("get", "pods", "--all-namespaces").stdout
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}\n{pods}"
        if "render kubernetes" in line:
            made = self.folder / "manifests"
            older_folder(made, made)
        return done.stdout

    def write(self, block: Block) -> None:
        """The page's cluster file, for this machine."""
        file = yaml.safe_load(block.text)
        (one,) = file["node_sets"]
        one |= yaml.safe_load(f"{{{_SMALL}}}")
        small = {"size": "1Gi", "storage_class": "by-hand"}
        file["kubernetes"] |= {
            "registry": "localhost/cellblock",
            "images": {"jail": self.jail},
            "cgroup": "disabled",
            "jail": {**small, "plain_http": True},
            "state": small,
            "database": small,
        }
        (self.folder / "cluster.yaml").write_text(yaml.safe_dump(file))

    def secrets(self) -> list[dict[str, str]]:
        """What the Secrets hold."""
        made = yaml.safe_load_all((self.folder / "manifests/secrets.yaml").read_text())
        return [one["data"] for one in made]

    def nodes(self) -> dict[str, str]:
        """Nodes and their states, as slurmctld has them."""
        command = ("sinfo", "-h", "-N", "-o", "%N %t")
        said = self.kubernetes.inside("controller-0", *command, container="slurmctld")
        return dict(line.split() for line in said.splitlines())


@pytest.fixture(scope="module")
def site(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    result = build_images(BuildRequest((*ROLES, "jail"), "debian13", load=True), Events())
    variant = result.variant.name
    kubernetes.load([f"localhost/cellblock/{name}:{variant}" for name in ROLES])
    with registry(folder, (), HOST) as host:
        jail = f"{host}/cellblock/jail:{variant}"
        push(f"containers-storage:localhost/cellblock/jail:{variant}", f"docker://{jail}")
        kubernetes.apply(*volumes(folder / "volumes"))
        yield Site(kubernetes, folder, jail)


def test_the_page_leads_to_a_job_over_two_nodes(site: Site) -> None:
    file, render, apply, job, change = blocks_for(PAGE, _TEST)
    site.write(file)
    for line in (*render.lines, *apply.lines):
        site.type(line)
    make_user, run = job.lines
    site.type(make_user)
    deadline = time.monotonic() + 30
    while "ada" not in site.kubernetes.inside("controller-0", "getent", "passwd", container="slurmctld"):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    time.sleep(2)
    # The 1.20 of the tests numbers pods from 0.
    assert sorted(site.type(run).split()) == ["cpu-0", "cpu-1"]
    assert site.nodes() == {"cpu-0": "idle", "cpu-1": "idle"}
    _applied_again_changes_nothing(site)
    secrets = site.secrets()
    path = site.folder / "cluster.yaml"
    path.write_text(path.read_text().replace("count: 2", "count: 3"))
    again, diff, apply_again = change.lines
    site.type(again)
    assert site.secrets() == secrets
    shown = site.type(diff)
    assert "replicas: 3" in shown
    site.type(apply_again)
    site.kubernetes.wait("a third node", lambda: site.nodes().get("cpu-2") == "idle", 120)


def _applied_again_changes_nothing(site: Site) -> None:
    changed = [
        line
        for line in site.type("kubectl apply -k manifests").splitlines()
        if not line.endswith(" unchanged")
    ]
    assert changed == []
    assert site.type("kubectl diff -k manifests") == ""


def test_a_changed_configuration_is_taken_and_a_bad_one_is_not(site: Site) -> None:
    def limit() -> str:
        shown = site.kubernetes.inside("controller-0", "scontrol", "show", "config", container="slurmctld")
        (line,) = [each for each in shown.splitlines() if each.startswith("MaxArraySize")]
        return line.split("=")[1].strip()

    path = site.folder / "cluster.yaml"
    before = path.read_text()
    started = site.kubernetes.get("pod/controller-0", "--namespace=slurm")["status"]["startTime"]
    path.write_text(before + 'slurm: {extra: {slurm.conf: "MaxArraySize=5001"}}\n')
    site.type("python3 build.py render kubernetes --cluster cluster.yaml --output manifests")
    site.type("kubectl apply -k manifests")
    # kubelet looks at ConfigMaps once a minute.
    site.kubernetes.wait("the new configuration", lambda: limit() == "5001", 150)
    path.write_text(before + 'slurm: {extra: {slurm.conf: "MaxArraySize=lots"}}\n')
    site.type("python3 build.py render kubernetes --cluster cluster.yaml --output manifests")
    site.type("kubectl apply -k manifests")

    def told() -> bool:
        events = site.kubernetes.get("events", "--namespace=slurm")["items"]
        return any("newest configuration is not in use" in event["message"] for event in events)

    site.kubernetes.wait("an event that says so", told, 180)
    assert limit() == "5001"
    pod = site.kubernetes.get("pod/controller-0", "--namespace=slurm")["status"]
    assert pod["startTime"] == started
    assert {one["restartCount"] for one in pod["containerStatuses"]} == {0}


def test_scaling_in_drains_the_node_and_forgets_it(site: Site) -> None:
    site.kubernetes("scale", "--namespace=slurm", "statefulset/cpu", "--replicas=2")
    site.kubernetes.wait("two nodes", lambda: sorted(site.nodes()) == ["cpu-0", "cpu-1"], 150)


def test_login_is_reached_over_its_service(site: Site) -> None:
    service = site.kubernetes.get("service/login", "--namespace=slurm")["spec"]["clusterIP"]
    scan = subprocess.run(
        ["ssh-keyscan", "-T", "10", "-t", "ed25519", service], capture_output=True, text=True, check=False
    )
    assert "ssh-ed25519" in scan.stdout, scan.stderr
