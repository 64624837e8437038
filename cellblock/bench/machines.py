# SPDX-License-Identifier: Apache-2.0
"""The nodes of the Kubernetes that real_kubernetes.py starts, as machines: a kubelet ends, a machine dies.

The program `kubernetes` notes each process in DIR/processes, as NAME PID; kubelet-N runs in the mount
namespace of namespace-N. real_kubernetes.py and tests/kubernetes call these functions.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

# With 100 kubelet removes no image, however full the disk is: what was loaded is in no registry.
_KEEP_IMAGES = "--image-gc-high-threshold=100"
_CONTAINERD = "/run/kubernetes-test/node-{}/containerd.sock"
_WAIT_S = 20


def keep_images(folder: Path) -> None:
    """Start the kubelet of each node anew, as one that removes no images."""
    for name in _processes(folder):
        if name.startswith("kubelet-"):
            number = int(name.removeprefix("kubelet-"))
            command = end_kubelet(folder, number)
            start_kubelet(folder, number, [*command, _KEEP_IMAGES])


def end_kubelet(folder: Path, number: int) -> list[str]:
    """Kill the kubelet of node-`number`: its pods go on, and nobody watches them. Returns its command."""
    pid = _processes(folder)[f"kubelet-{number}"]
    command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _WAIT_S
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return command


def start_kubelet(folder: Path, number: int, command: list[str]) -> None:
    """Start the kubelet of node-`number` by what `end_kubelet` returned."""
    namespace = _processes(folder)[f"namespace-{number}"]
    with (folder / f"log/kubelet-{number}.log").open("a") as log:
        started = subprocess.Popen(
            ["nsenter", "--mount", "--target", str(namespace), *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _note(folder, f"kubelet-{number}", started.pid)


def end_containers(number: int) -> None:
    """Kill all containers of node-`number`, whose kubelet has ended: the machine is dead."""
    ctr = ["ctr", "-a", _CONTAINERD.format(number), "-n", "k8s.io", "tasks"]
    listed = subprocess.run([*ctr, "ls", "-q"], capture_output=True, text=True, check=True)
    for task in listed.stdout.split():
        # One may end by itself meanwhile.
        subprocess.run([*ctr, "kill", "-s", "KILL", "-a", task], capture_output=True, check=False)


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
