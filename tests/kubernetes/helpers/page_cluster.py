# SPDX-License-Identifier: Apache-2.0
"""Makes the cluster of docs/kubernetes.md by typing the page's commands, and changes its cluster file.

Objects for Kubernetes 1.20 are made from the rendered ones (cellblock/kubernetes/release_1_20.py), after each
`render` that is typed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cellblock.bench.harness import machines
from cellblock.bench.harness.real_kubernetes import HOST, NODES, older_folder
from cellblock.bench.harness.registry import push, registry
from cellblock.bench.kubernetes import ROLES, volumes
from cellblock.errors import CellblockError
from cellblock.paths import PROJECT
from tests.documented import blocks_for
from tests.kubernetes.helpers.kubernetes import Kubernetes
from tests.kubernetes.helpers.small_cluster import REPOSITORY, Site, bring_images, jail_image, own_name

PAGE = "kubernetes.md"
TEST = "test_the_page_leads_to_a_job_over_two_nodes"
GRACE_S = 30
# slurmctld gives a node up after so long.
SILENT_S = 40
# An allocation whose command does not answer for so long, and what Slurm adds to it, is ended.
INACTIVE_S = 15
# What the page types is for machines that a node has for itself; here are two processors for all of it.
_SMALL = f"resources: {{cpu: 2, memory: 512Mi}}, requests: {{cpu: 50m, memory: 64Mi}}, grace: {GRACE_S}s"
USER = "ada"

File = dict[str, Any]
"""A cluster file."""


@dataclass(frozen=True)
class PageCluster(Site):
    """The cluster, in whose folder the page is typed."""

    host: str
    """A registry, HOST:PORT."""

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
        if "render kubernetes --cluster" in line:
            made = self.folder / "manifests"
            older_folder(made, made)
        return done.stdout

    def change(self, edit: Callable[[File], None]) -> None:
        """Change the cluster file, render it and apply it."""
        path = self.folder / "cluster.yaml"
        file = yaml.safe_load(path.read_text())
        edit(file)
        path.write_text(yaml.safe_dump(file))
        self.type("python3 build.py render kubernetes --cluster cluster.yaml --output manifests")
        self.type("kubectl apply -k manifests")

    def secrets(self) -> list[dict[str, str]]:
        """What the Secrets hold."""
        made = yaml.safe_load_all((self.folder / "manifests/secrets.yaml").read_text())
        return [one["data"] for one in made]

    def nodes(self) -> dict[str, str]:
        """Nodes and their states, as slurmctld has them; none while it does not answer."""
        where = (f"--namespace={self.space}", "controller-0", "--container=slurmctld")
        said = self.kubernetes.run("exec", *where, "--", "sinfo", "-h", "-N", "-o", "%N %t")
        return dict(line.split() for line in said.stdout.splitlines()) if not said.returncode else {}

    def until(self, what: str, condition: Callable[[], bool], seconds: float = 120) -> None:
        """Wait for `condition`, which may ask a pod that is away."""

        def holds() -> bool:
            try:
                return condition()
            except CellblockError:
                return False

        self.kubernetes.wait(what, holds, seconds)

    def serves(self, *names: str) -> bool:
        """Whether these are the nodes, and all of them idle."""
        return self.nodes() == dict.fromkeys(names or ("cpu-0", "cpu-1"), "idle")

    def run_as(self, *command: str) -> str:
        """What a command prints in the jail, as the user."""
        return self.jail(*command, user=USER)

    def submit_as(self, script: str, *options: str) -> str:
        """The number of a batch job of the user's."""
        out = ("--chdir=/tmp", "--output=/dev/null", "--requeue")
        return self.run_as("sbatch", "--parsable", *out, *options, "--wrap", script).strip()

    def state(self, job: str) -> str:
        """Of a job, as accounting has it: its state, and how often it was queued again."""
        said = self.slurm("sacct", "-n", "-X", "-P", "-j", job, "-o", "State,Restarts")
        return said.splitlines()[-1] if said else ""

    def runs(self, job: str) -> bool:
        """Whether a job runs, as slurmctld has it."""
        return self.slurm("squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING"

    def restarts(self, job: str) -> int:
        """How often a job was queued again, as slurmctld has it."""
        said = self.slurm("squeue", "-h", "-t", "all", "-j", job, "-O", "RestartCnt")
        return int(said.strip() or 0)

    def is_ready(self, pod: str) -> bool:
        """Whether a pod is there, is not about to go, and is ready."""
        found = self.kubernetes.run("get", f"pod/{pod}", f"--namespace={self.space}", "--output=json")
        if found.returncode:
            return False
        one = json.loads(found.stdout)
        conditions = {each["type"]: each["status"] for each in one["status"].get("conditions", ())}
        return "deletionTimestamp" not in one["metadata"] and conditions.get("Ready") == "True"

    def evict(self, pod: str, seconds: int) -> None:
        """As a drain does it, and kubelet when a machine's memory or disk is full."""
        eviction = {
            "apiVersion": "policy/v1beta1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.space},
            "deleteOptions": {"gracePeriodSeconds": seconds},
        }
        path = f"/api/v1/namespaces/{self.space}/pods/{pod}/eviction"
        self.kubernetes("create", f"--raw={path}", "--filename=-", given=json.dumps(eviction))

    def machine(self, pod: str) -> str:
        """The machine of a pod."""
        return str(self.pod(pod)["spec"]["nodeName"])

    def pod(self, name: str) -> Any:
        """A pod's object."""
        return self.kubernetes.get(f"pod/{name}", f"--namespace={self.space}")

    def login_address(self) -> str:
        """The address of the login nodes' Service."""
        return str(self.kubernetes.get("service/login", f"--namespace={self.space}")["spec"]["clusterIP"])

    def own_image(self, image: str, tag: str) -> str:
        """Another name of the image `image`, which is on the nodes, too."""
        name = own_name(image, tag)
        machines.name_image(own_name(image), name, NODES)
        return name


@contextmanager
def typed_cluster(kubernetes: Kubernetes, folder: Path) -> Iterator[PageCluster]:
    """The page's cluster, whose objects are applied, whose nodes are ready, and which has its user."""
    bring_images(kubernetes, ROLES)
    with registry(folder, (), HOST) as host:
        jail = f"{host}/cellblock/jail:debian13"
        push(jail_image(kubernetes), f"docker://{jail}")
        kubernetes.apply(*volumes(folder / "volumes"))
        file, render, apply, job, _ = blocks_for(PAGE, TEST)
        cluster = PageCluster(kubernetes, "slurm", folder, host)
        (folder / "cluster.yaml").write_text(
            yaml.safe_dump(_for_this_machine(yaml.safe_load(file.text), jail))
        )
        for line in (*render.lines, *apply.lines, job.lines[0]):
            cluster.type(line)
        cluster.until("the user", lambda: USER in cluster.slurm("getent", "passwd"))
        cluster.until("an association", lambda: USER in cluster.slurm("sacctmgr", "-n", "list", "user"))
        yield cluster


def _for_this_machine(file: File, jail: str) -> File:
    """The page's cluster file, smaller, and with the images here."""
    (one,) = file["node_sets"]
    one |= yaml.safe_load(f"{{{_SMALL}}}")
    small = {"size": "1Gi", "storage_class": "by-hand"}
    file["kubernetes"] |= {
        "registry": REPOSITORY,
        "images": {"jail": jail},
        "cgroup": "disabled",
        "jail": {**small, "plain_http": True},
        "state": small,
        "database": small,
    }
    file["slurm"] = {"extra": {"slurm.conf": f"SlurmdTimeout={SILENT_S}\nInactiveLimit={INACTIVE_S}"}}
    return file
