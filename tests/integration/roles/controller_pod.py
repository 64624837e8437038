# SPDX-License-Identifier: Apache-2.0
"""Runs a controller's container as Kubernetes does: Slurm's configuration is a ConfigMap that changes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cellblock.cluster.engine.api import podman_environment
from cellblock.cluster.engine.container_specs import container_name
from tests.integration.local_cluster import Done, LocalCluster, Unclear, podman

# What a container of a cluster may do (docs/decisions/cluster-capabilities.md).
_MAY = "CHOWN,DAC_OVERRIDE,FOWNER,KILL,SETGID,SETUID"
# Written by the container, which keeps nothing else.
_IN_MEMORY = ("/run", "/tmp", "/var/log", "/etc/munge", "/var/lib/munge", "/var/lib/extrausers", "/etc/slurm")
_ALICE = ("1000", "alice:x:1000:1000::/:/bin/sh\n", "alice:x:1000:\n", "alice:*:1::::::\n")
# A slurmctld that runs alone, with nodes that nobody serves.
_NODES = "NodeName=n-[1-2] NodeAddr=127.0.0.1 Port=9 CPUs=1 RealMemory=100\n"
_OWN = re.compile(r"^(AccountingStorage\w*|PartitionName|NodeName|NodeSet|GresTypes|AuthAlt\w+)=.*\n", re.M)
MAIN = "PartitionName=main Nodes=ALL Default=YES\n"


@dataclass
class ControllerPod:
    """The container, and the folder that stands for the ConfigMap's volume."""

    name: str
    image: str
    folder: Path
    files: Mapping[str, str]
    """Of the cluster's own configuration, without slurm.conf's partitions and nodes."""

    def put(self, lines: str | None, files: Mapping[str, str] | None = None) -> None:
        """Exchange all files of the ConfigMap at once, as kubelet does, for those with `lines` in slurm.conf.

        None: for no file.
        """
        texts = dict(self.files) if lines is not None else {}
        if lines is not None:
            texts["slurm.conf"] += _NODES + lines
        texts |= files or {}
        volume = self.folder / "map"
        own = volume / f"..{time.time_ns()}"
        own.mkdir(parents=True)
        for name, text in texts.items():
            (own / name).write_text(text, encoding="utf-8")
            if not (volume / name).is_symlink():
                (volume / name).symlink_to(f"..data/{name}")
        before = (volume / "..data").resolve() if (volume / "..data").is_symlink() else None
        (volume / "..new").symlink_to(own.name)
        (volume / "..new").replace(volume / "..data")
        for name in {one.name for one in volume.iterdir() if one.name[:2] != ".."} - set(texts):
            (volume / name).unlink()
        if before:
            shutil.rmtree(before)

    def start(self) -> None:
        """Start the container anew: a pod that takes the place of another keeps slurmctld's state alone."""
        self.remove()
        mounts = {
            "map": "/etc/cellblock/slurm:ro",
            "secrets": "/run/secrets/cellblock:ro",
            "etc": "/mnt/jail-etc:ro",
            "state": "/var/lib/slurm/slurmctld",
        }
        podman(
            *("run", "--detach", "--name", self.name, "--hostname", "controller", "--read-only"),
            *("--add-host", "controller:127.0.0.1", "--read-only-tmpfs=false"),
            *("--cap-drop", "ALL", "--cap-add", _MAY),
            *(word for path in _IN_MEMORY for word in ("--tmpfs", f"{path}:mode=755")),
            *(word for one, at in mounts.items() for word in ("--volume", f"{self.folder / one}:{at}")),
            self.image,
        )
        self.wait_until("slurmctld answers", self.answers)

    def remove(self) -> None:
        """Remove the container."""
        podman("rm", "--force", "--time", "2", "--ignore", self.name)

    def run(self, *command: str) -> Done:
        """Run `command` in the container, as root."""
        done = subprocess.run(
            ["podman", "exec", self.name, *command],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **podman_environment()},
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def answers(self) -> bool:
        """Whether slurmctld does."""
        return " is UP" in self.run("scontrol", "ping").out

    def partitions(self) -> set[str]:
        """Those that slurmctld has."""
        shown = self.run("scontrol", "--oneliner", "show", "partition").out
        return set(re.findall(r"PartitionName=(\S+)", shown))

    def refused(self) -> str:
        """What the pod's probe says of the configuration; nothing while all is well."""
        told = self.run("/usr/lib/cellblock/configuration-state")
        assert (told.status == 0) == (told.out == "")
        return told.out

    def said(self) -> str:
        """What the container wrote."""
        return podman("logs", self.name)

    def stop_slurmctld(self) -> None:
        """Kill slurmctld, and have nobody start another."""
        self.run("sh", "-c", f"kill -STOP {self.supervisor()}; kill -KILL $(pidof slurmctld)").ok()

    def supervisor(self) -> str:
        """The number of the process that starts slurmctld."""
        look = "tr '\\0' ' ' </proc/$p/cmdline | grep -q start-slurmctld && echo $p"
        return self.run("sh", "-c", f"for p in $(pidof node-supervise); do {look}; done; true").ok().strip()

    def wait_until(self, what: str, condition: Callable[[], bool], timeout_s: float = 120) -> None:
        """Wait until `condition()` holds."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() >= deadline:
                raise Unclear(f"not after {timeout_s} s: {what}\n{self.said()[-4000:]}")
            time.sleep(0.3)


@contextmanager
def controller_pod(cluster: LocalCluster, folder: Path) -> Iterator[ControllerPod]:
    """A controller of its own, with the image and the configuration of the cluster's."""
    image = podman("inspect", "--format", "{{.Image}}", container_name(cluster.request.name, "controller"))
    names = cluster.on("controller", "ls", "/etc/slurm").ok().split()
    files = {name: cluster.on("controller", "cat", f"/etc/slurm/{name}").ok() for name in names}
    files["slurm.conf"] = _OWN.sub("", files["slurm.conf"])
    files.pop("gres.conf", None)
    for name in ("map", "secrets", "etc", "state"):
        (folder / name).mkdir()
    key = folder / "secrets" / "munge.key"
    key.write_bytes(os.urandom(128))
    for name, line in zip(("passwd", "group", "shadow"), _ALICE[1:], strict=True):
        (folder / "etc" / name).write_text(line)
    (folder / "etc" / "gshadow").touch()
    pod = ControllerPod(f"{cluster.request.name}-pod", image.strip(), folder, files)
    pod.put(MAIN)
    try:
        pod.start()
        yield pod
    finally:
        pod.remove()
