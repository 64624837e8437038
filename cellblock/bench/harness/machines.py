# SPDX-License-Identifier: Apache-2.0
"""Ends and starts nodes of the Kubernetes that real_kubernetes.py runs, as if machines died.

The program `kubernetes` records each process in DIR/processes, as NAME PID; kubelet-N runs in the mount
namespace of namespace-N. real_kubernetes.py and tests/kubernetes/cluster call these functions.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from cellblock.errors import CellblockError

_OPTIONS = (
    # With 100 kubelet removes no image, however full the disk is: what was loaded is in no registry.
    "--image-gc-high-threshold=100",
    # How often volumes of a changed ConfigMap are written anew; a minute by default.
    "--sync-frequency=10s",
)
_CONTAINERD = "/run/kubernetes-test/node-{}/containerd.sock"
_WAIT_S = 20
FIRST = ("nice", "--adjustment=-10")
"""Before a command of a node's or the control plane's: leases and probes have limits of seconds."""
# Where the cgroups of a node are, by hierarchies of their own or by the one.
_GROUPS = ("/sys/fs/cgroup/cpu/kubernetes-test-{}/cpu.shares", "/sys/fs/cgroup/kubernetes-test-{}/cpu.weight")
# A group has the processor time of one process beside it; all pods of a node are in one.
_SHARES = 20 * 1024
_WEIGHT = 2000


def prefer_pods(nodes: int) -> None:
    """Have the pods of each of `nodes` served before other processes of a busy machine."""
    for number in range(1, nodes + 1):
        for path, value in zip(_GROUPS, (_SHARES, _WEIGHT), strict=True):
            file = Path(path.format(number))
            if file.exists():
                file.write_text(str(value))


def restart_kubelets(folder: Path) -> None:
    """Start the kubelet of each node anew, as one that removes no images and is soon up to date."""
    for name in _processes(folder):
        if name.startswith("kubelet-"):
            number = int(name.removeprefix("kubelet-"))
            command = end_kubelet(folder, number)
            start_kubelet(folder, number, [*command, *_OPTIONS])


def restart_names(folder: Path) -> None:
    """Start the server of names anew, as one that knows what is not there.

    Without a server to ask, it refuses a bare name and a pod's address; slurmctld tries again for seconds.
    Another server of names is left alone.
    """
    if not {"dns", "names"} <= set(_processes(folder)):
        return
    server, names = (_end(folder, name) for name in ("dns", "names"))
    pid = _start(folder, "dns", [*server, "--domain-needed", "--bogus-priv"])
    # The last of the arguments is the server's number.
    _start(folder, "names", [*names[:-1], str(pid)])


def end_kubelet(folder: Path, number: int) -> list[str]:
    """Kill the kubelet of node-`number`: its pods go on, and nobody watches them. Returns its command."""
    return _end(folder, f"kubelet-{number}")


def start_kubelet(folder: Path, number: int, command: list[str]) -> None:
    """Start the kubelet of node-`number` by what `end_kubelet` returned."""
    namespace = _processes(folder)[f"namespace-{number}"]
    _start(folder, f"kubelet-{number}", ["nsenter", "--mount", "--target", str(namespace), *command])


def _end(folder: Path, name: str) -> list[str]:
    """Kill a process that was started; returns its command, with the environment that it had."""
    pid = _processes(folder)[name]
    command = ["env", "--ignore-environment"]
    for part in ("environ", "cmdline"):
        command += Path(f"/proc/{pid}/{part}").read_bytes().decode().split("\0")[:-1]
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _WAIT_S
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return command


def _start(folder: Path, name: str, command: list[str]) -> int:
    """Start a process with a log of its name, and note it; returns its number."""
    with (folder / f"log/{name}.log").open("a") as log:
        started = subprocess.Popen(
            [*FIRST, *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _note(folder, name, started.pid)
    return started.pid


def end_containers(number: int) -> None:
    """Kill all containers of node-`number`, whose kubelet has ended: the machine is dead."""
    listed = subprocess.run(_ctr(number, "tasks", "ls", "-q"), capture_output=True, text=True, check=True)
    for task in listed.stdout.split():
        # One may end by itself meanwhile.
        kill = _ctr(number, "tasks", "kill", "-s", "KILL", "-a", task)
        subprocess.run(kill, capture_output=True, check=False)


def import_archive(archive: Path, nodes: int) -> None:
    """Have the images of an OCI archive on each of `nodes`. Raises CellblockError."""
    commands = [_ctr(number, "images", "import", str(archive)) for number in range(1, nodes + 1)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for command in commands
    ]
    for one in running:
        said = one.communicate()[0]
        if one.returncode:
            raise CellblockError(
                f"ctr images import {archive} ended with status {one.returncode}: {said.strip()[-1000:]}",
                hint="correct what it says; containerd 1.6 and later read layers of zstd",
            )


def name_image(name: str, new: str, nodes: int) -> None:
    """Give the image `name` of each of `nodes` another name, too."""
    for number in range(1, nodes + 1):
        subprocess.run(_ctr(number, "images", "tag", name, new), check=True, capture_output=True)


def _ctr(number: int, *arguments: str) -> list[str]:
    return ["ctr", "-a", _CONTAINERD.format(number), "-n", "k8s.io", *arguments]


def _processes(folder: Path) -> dict[str, int]:
    lines = (folder / "processes").read_text().splitlines()
    return {name: int(pid) for name, pid in (line.split() for line in lines)}


def _note(folder: Path, name: str, pid: int) -> None:
    """What `kubernetes down` ends."""
    kept = {**_processes(folder), name: pid}
    path = folder / "processes.new"
    path.write_text("".join(f"{each} {number}\n" for each, number in kept.items()))
    path.rename(folder / "processes")


def _runs(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"
