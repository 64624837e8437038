# SPDX-License-Identifier: Apache-2.0
"""Starts a real Kubernetes of two nodes on this machine, for the benchmark and the tests, and ends it.

It calls the program `kubernetes` in the folder CELLBLOCK_KUBERNETES, or in shared/kubernetes beside the
checkout. `up DIR NODES` prints the path of the KUBECONFIG, leaves kubectl in DIR/bin and names and pids of
what it started in DIR/processes; `down DIR` ends it. The nodes are this host: a hostPath is the same on all,
and HOST is one of its addresses, which pods reach. Only one can run on a machine.
tests/kubernetes/from_source makes the program where there is none.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cellblock.bench.harness import machines
from cellblock.errors import CellblockError
from cellblock.kubernetes.metadata import Object
from cellblock.kubernetes.release_1_20 import for_1_20
from cellblock.launcher.main import kubernetes_folder
from cellblock.launcher.system_packages import KUBERNETES_PROGRAMS
from cellblock.paths import PROJECT

HOST = "10.96.0.10"
NODES = 2
_TIMEOUT_S = 300
# Of a container: a hundredth of a processor.
_REQUEST = "10m"
# A run of the tests beside this one takes so long.
_OTHERS_S = 600
# Taken by who has a Kubernetes here: its addresses and ports are fixed.
_LOCK = Path("/run/cellblock-kubernetes.lock")


def program() -> Path | None:
    """The program that starts a Kubernetes, where there is one and this process may use it."""
    return None if why_not() else Path(kubernetes_folder(str(PROJECT))) / "kubernetes"


def why_not() -> str:
    """What is missing when `program` finds none; else nothing."""
    folder = Path(kubernetes_folder(str(PROJECT)))
    if not os.access(folder / "kubernetes", os.X_OK):
        named = "CELLBLOCK_KUBERNETES names" if os.environ.get("CELLBLOCK_KUBERNETES") else "there is"
        return f"{named} no folder with a program `kubernetes`: {folder}"
    if os.geteuid() != 0:
        return "the nodes of a Kubernetes need root"
    absent = [each for each in KUBERNETES_PROGRAMS if not shutil.which(each)]
    return f"not installed: {', '.join(absent)}" if absent else ""


@dataclass(frozen=True)
class Kubernetes:
    """A running Kubernetes with the nodes node-1 and node-2."""

    program: Path
    folder: Path
    configuration: str

    def __call__(self, *arguments: str, given: str | None = None, timeout_s: float = _TIMEOUT_S) -> str:
        """What kubectl prints. Raises CellblockError when it fails."""
        done = self.run(*arguments, given=given, timeout_s=timeout_s)
        if done.returncode:
            raise CellblockError(
                f"kubectl {' '.join(arguments)} ended with status {done.returncode}: "
                f"{(done.stderr + done.stdout).strip()[-3000:]}",
                hint=f"look into it: KUBECONFIG={self.configuration} {self.folder}/bin/kubectl get pods -A",
            )
        return done.stdout

    def run(
        self, *arguments: str, given: str | None = None, timeout_s: float = _TIMEOUT_S
    ) -> subprocess.CompletedProcess[str]:
        """`kubectl` with `arguments`, however it ends."""
        return subprocess.run(
            [str(self.folder / "bin/kubectl"), f"--kubeconfig={self.configuration}", *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def get(self, *arguments: str) -> Any:
        """The objects that `kubectl get` finds."""
        return json.loads(self("get", "--output=json", *arguments))

    def apply(self, *manifests: Object) -> None:
        """Create or change objects."""
        self("apply", "--filename=-", given=yaml.safe_dump_all(manifests))

    def load_layout(self, layout: Path) -> None:
        """Bring the images of an OCI layout to the nodes, by their names there, their layers as they are."""
        archive = self.folder / "images.tar"
        subprocess.run(["tar", "-C", str(layout), "-cf", str(archive), "."], check=True)
        machines.import_archive(archive, NODES)
        archive.unlink()

    def inside(self, pod: str, *command: str, container: str = "", namespace: str = "slurm") -> str:
        """What `command` prints in a pod."""
        chosen = [f"--container={container}"] if container else []
        return self("exec", f"--namespace={namespace}", pod, *chosen, "--", *command)

    def wait(self, what: str, condition: Any, timeout_s: float) -> None:
        """Wait until `condition()` is true. Raises CellblockError, with the pods, when it is not in time."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                pods = self.run("get", "pods", "--all-namespaces", "--output=wide").stdout
                raise CellblockError(f"after {timeout_s:.0f} s, still waiting for {what}:\n{pods}")
            time.sleep(0.3)


def for_here(manifest: Object) -> Object:
    """`manifest` as Kubernetes 1.20 takes it, with pods that ask for little of a processor.

    Both nodes are this machine, on which several clusters may be: what pods ask for by default is more than
    two processors have.
    """
    made = for_1_20(manifest)
    spec = made.get("spec", {})
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    pod = spec.get("template", {}).get("spec", {})
    for container in (*pod.get("initContainers", ()), *pod.get("containers", ())):
        container["resources"]["requests"]["cpu"] = _REQUEST
    return made


def older_folder(rendered: Path, target: Path) -> Path:
    """A copy of a rendered folder whose manifests the Kubernetes here takes."""
    for path in sorted(rendered.rglob("*")):
        if path.is_file() and path.parent.name != "monitoring":
            made = target / path.relative_to(rendered)
            made.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text()
            if path.suffix == ".yaml" and path.parent == rendered:
                text = yaml.safe_dump_all([for_here(one) for one in yaml.safe_load_all(text)])
            made.write_text(text)
            made.chmod(path.stat().st_mode & 0o777)
    return target


# The nodes' bridges hide a pod's address from pods of the other node, as no network of a Kubernetes may:
# slurmctld takes a node's address from its connection.
_PODS = "10.88.0.0/16"
_NO_NAT = ("POSTROUTING", "-s", _PODS, "-d", _PODS, "-j", "ACCEPT")


# Keeps a Kubernetes while its standard input is open: as long as the process that started it lives, however
# that ends. What is left in the folder are logs: images take gigabytes.
_KEEPER = """\
said=$(exec {lock}>&-; exec "$0" up "$1" "$2") && echo "$said" | tail -n 1 || echo
cat >/dev/null
allow() { iptables -t nat "$1" POSTROUTING -s "$2" -d "$2" -j ACCEPT; }
allow -D "$3" 2>/dev/null
# What a kubelet starts while all ends would stay.
sed -n 's/^kubelet-[0-9]* //p' "$1/processes" | xargs -r kill -KILL
"$0" down "$1"
rm -rf "$1"/node-* "$1/bin" "$1/pki" "$1/pause"* "$1"/images*
"""


@contextmanager
def running_kubernetes(started: Path, folder: Path) -> Iterator[Kubernetes]:
    """A Kubernetes of two nodes by the program `started`, with all that it keeps in `folder`.

    It ends with the block, and with this process. Raises CellblockError when it does not start, or another
    one runs on this machine for too long.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _alone() as lock, (folder / "up.log").open("w") as log:
        keep = (str(started), str(folder), str(NODES), _PODS)
        keeper = subprocess.Popen(
            [*machines.FIRST, "bash", "-c", f"lock={lock}\n{_KEEPER}", *keep],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            pass_fds=(lock,),
        )
        try:
            assert keeper.stdin
            assert keeper.stdout
            configuration = keeper.stdout.readline().strip()
            if not configuration:
                raise CellblockError(
                    f"{started} up failed: {(folder / 'up.log').read_text().strip()[-2000:]}",
                    hint="its README says what it needs",
                )
            subprocess.run(["iptables", "-t", "nat", "-I", *_NO_NAT], check=True)
            machines.restart_kubelets(folder)
            machines.restart_names(folder)
            machines.prefer_pods(NODES)
            yield Kubernetes(started, folder, configuration)
        finally:
            keeper.communicate()


@contextmanager
def _alone() -> Iterator[int]:
    """The lock of this machine's Kubernetes, as a descriptor. Raises CellblockError."""
    with _LOCK.open("w") as file:
        deadline = time.monotonic() + _OTHERS_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pass
            if time.monotonic() > deadline:
                raise CellblockError(
                    f"{_LOCK} is held by another Kubernetes of tests or `bench kubernetes` on this machine",
                    hint=f"wait for its end, or look for who has it: fuser {_LOCK}",
                )
            time.sleep(1)
        yield file.fileno()
