# SPDX-License-Identifier: Apache-2.0
"""Measures how long a cluster takes on Kubernetes, from `kubectl apply -k` to a job on two nodes in the jail.

The namespace is empty at the start, the images are on the nodes, and the jail's image is in a registry of
this machine.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cellblock import __version__
from cellblock.bench.harness.real_kubernetes import (
    HOST,
    Kubernetes,
    older_folder,
    program,
    running_kubernetes,
    why_not,
)
from cellblock.bench.harness.registry import push, registry
from cellblock.build import BuildRequest, BuildResult, build_images, copy_images
from cellblock.cluster.definition.cluster_file import load_cluster_file
from cellblock.cluster.definition.model import SlurmVariant
from cellblock.cluster.proof_user import ENSURE_SCRIPT, MAY_SUBMIT, PROOF_USER
from cellblock.cluster.up_request import project_of
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.kubernetes.description import describe
from cellblock.kubernetes.metadata import Object
from cellblock.kubernetes.render import SECRETS, render, write
from cellblock.kubernetes.secrets import write_secrets
from cellblock.oci.layout import Layout
from cellblock.store.image_store import image_store

ROLES = ("controller", "worker", "login", "accounting", "database", "rest", "metrics", "jail-init")
"""The images that nodes run; the jail's is read from a registry."""
CLASS = "by-hand"
"""The storage class of the volumes."""

FILE = """\
name: pods
variant: {variant}
accounting: {{}}
rest: {{}}
metrics: {{}}
node_sets:
  - name: cpu
    count: 2
    resources: {{cpu: 2, memory: 512Mi}}
    requests: {{cpu: 50m, memory: 64Mi}}
    grace: 1m
  - name: big
    resources: {{cpu: 1, memory: 1Gi}}
    requests: {{cpu: 50m, memory: 64Mi}}
    gres: {{fpga: 2}}
    grace: 1m
partitions:
  - {{name: main, default: true, node_sets: [cpu]}}
  - {{name: large, node_sets: [big]}}
kubernetes:
  registry: {images}
  images: {{jail: "{jail}"}}
  cgroup: disabled
  jail: {{size: 4Gi, storage_class: by-hand, plain_http: true}}
  state: {{size: 1Gi, storage_class: by-hand}}
  database: {{size: 1Gi, storage_class: by-hand}}
"""
"""The cluster file. A machine of two processors has it all: pods ask for less than Slurm gives away."""

_READY_S = 240


@dataclass(frozen=True)
class KubernetesCost:
    """Seconds from `kubectl apply -k` to the end of a job over two nodes; and of all of the benchmark."""

    apply_to_job_s: float
    seconds: float

    def keys(self) -> Mapping[str, float]:
        """The keys that `build.py bench kubernetes --json` prints."""
        return {"apply_to_job_s": round(self.apply_to_job_s, 1)}


def kubernetes_cost(variant: str | None, events: Events) -> KubernetesCost:
    """Run the benchmark. Raises CellblockError where there is no Kubernetes.

    SIGTERM ends it as Ctrl-C does, with what it made.
    """
    started = time.monotonic()
    found = program()
    if found is None:
        raise CellblockError(why_not(), hint="CELLBLOCK_KUBERNETES=FOLDER python3 build.py bench kubernetes")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    result = build_images(BuildRequest((*ROLES, "jail"), variant), events)
    with tempfile.TemporaryDirectory(prefix="cellblock-kubernetes-", dir="/var/tmp") as name:
        folder = Path(name)
        with (
            events.step("kubernetes", "start, run and end"),
            running_kubernetes(found, folder / "kubernetes") as kubernetes,
            prepared(kubernetes, result, folder) as rendered,
        ):
            took = apply_to_job(kubernetes, rendered)
    return KubernetesCost(took, time.monotonic() - started)


def bring_images(kubernetes: Kubernetes, result: BuildResult, names: Sequence[str]) -> str:
    """Have the images `names` of a build on the nodes; returns the repository of the names they have there.

    No other build gives such names: those of `localhost/cellblock` mean what any checkout loaded last.
    """
    repository = f"localhost/cellblock-{os.getpid()}"
    layout = kubernetes.folder / "images"
    tags = {f"{repository}/{name}:{result.variant.name}": result.images[name].reference for name in names}
    image_store().copy_to(tags, Layout(layout))
    kubernetes.load_layout(layout)
    shutil.rmtree(layout)
    return repository


def jail_layout(kubernetes: Kubernetes, result: BuildResult) -> str:
    """The jail's image of a build, as skopeo names it."""
    layout = kubernetes.folder / f"images-jail-{result.variant.name}"
    copy_images(result, layout, ["jail"])
    return f"oci:{layout}:jail:{result.variant.name}"


@contextmanager
def prepared(kubernetes: Kubernetes, result: BuildResult, folder: Path) -> Iterator[Path]:
    """The rendered folder of FILE, with images of `result` and volumes there.

    A registry serves while the block runs.
    """
    variant = result.variant.name
    images = bring_images(kubernetes, result, ROLES)
    with registry(folder, (), HOST) as host:
        jail = f"{host}/cellblock/jail:{variant}"
        push(jail_layout(kubernetes, result), f"docker://{jail}")
        kubernetes.apply(*volumes(folder / "volumes"))
        path = folder / "cluster.yaml"
        path.write_text(FILE.format(variant=variant, images=images, jail=jail))
        render_to(path, folder / "rendered")
        yield older_folder(folder / "rendered", folder / "older")


def render_to(path: Path, output: Path) -> None:
    """Render the cluster file at `path`, with its secrets, as `render kubernetes --cluster` does."""
    file = load_cluster_file(path)
    variant = project_of(file).variant(file.variant)
    chosen = SlurmVariant(variant.name, variant.slurm.release, variant.slurm.plugin_dir)
    description = describe(file, chosen, path.name, __version__)
    write(output, render(description))
    write_secrets(description, output / SECRETS)


def volumes(folder: Path) -> list[Object]:
    """Volumes by hand: folders of this host, one for each claim. MariaDB's belongs to its user already."""
    made = []
    for name, mode, owner in (
        ("jail", "ReadWriteMany", 0),
        ("state", "ReadWriteOnce", 0),
        ("archive", "ReadWriteOnce", 0),
        ("data", "ReadWriteOnce", 65521),
    ):
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        if owner:
            subprocess.run(["chown", f"{owner}:{owner}", str(place)], check=True)
        claim = {"jail": "jail", "state": "controller-state", "archive": "accounting-archive"}
        made.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"{CLASS}-{name}"},
                "spec": {
                    "capacity": {"storage": "4Gi"},
                    "accessModes": [mode],
                    "storageClassName": CLASS,
                    "hostPath": {"path": str(place)},
                    "claimRef": {"namespace": "slurm", "name": claim.get(name, "database-data")},
                },
            }
        )
    return made


def apply_to_job(kubernetes: Kubernetes, rendered: Path, namespace: str = "slurm") -> float:
    """Apply a rendered folder to an empty namespace; the seconds until a job over two nodes has ended."""
    started = time.monotonic()
    kubernetes("apply", f"--filename={rendered}/namespace.yaml", f"--filename={rendered}/{SECRETS}")
    kubernetes("apply", f"--kustomize={rendered}")
    two_node_job(kubernetes, namespace)
    return time.monotonic() - started


def in_jail(kubernetes: Kubernetes, *command: str, user: str = PROOF_USER, namespace: str = "slurm") -> str:
    """What `command` prints in the jail, as seen from the first login node."""
    enter = ("jail-enter", "--plan", "/etc/cellblock/jail.fstab", "--user", user, "--")
    return kubernetes.inside("login-0", *enter, *command, namespace=namespace)


def two_node_job(kubernetes: Kubernetes, namespace: str = "slurm") -> str:
    """What a job over both nodes of the default partition prints, as soon as the cluster takes it."""

    def ready(kind: str) -> bool:
        status = kubernetes.run(
            "get", kind, f"--namespace={namespace}", "--output=jsonpath={.status.readyReplicas}"
        )
        return status.returncode == 0 and int(status.stdout or 0) > 0

    kubernetes.wait("the login node", lambda: ready("statefulset/login"), _READY_S)
    in_jail(kubernetes, "sh", "-c", ENSURE_SCRIPT, PROOF_USER, user="root", namespace=namespace)

    def may_submit() -> bool:
        command = ("sh", "-c", f"getent passwd {PROOF_USER} && {{ {MAY_SUBMIT}\n}}", PROOF_USER)
        chosen = ("exec", f"--namespace={namespace}", "controller-0", "--container=slurmctld", "--", *command)
        return kubernetes.run(*chosen).returncode == 0

    kubernetes.wait(f"slurmctld to know user {PROOF_USER}", may_submit, _READY_S)

    def nodes() -> bool:
        command = ("sinfo", "-h", "-N", "-p", "main", "-o", "%t")
        chosen = ("exec", f"--namespace={namespace}", "controller-0", "--container=slurmctld", "--", *command)
        return kubernetes.run(*chosen).stdout.split().count("idle") >= 2

    kubernetes.wait("two idle nodes", nodes, _READY_S)
    show = '. /etc/os-release; echo "$SLURMD_NODENAME $(hostname) $PRETTY_NAME"'
    srun = ("timeout", "90", "srun", "--quiet", "--chdir=/tmp", "--nodes=2", "--ntasks-per-node=1")
    return in_jail(kubernetes, *srun, "sh", "-c", show, namespace=namespace)
