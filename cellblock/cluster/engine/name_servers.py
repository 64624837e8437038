# SPDX-License-Identifier: Apache-2.0
"""Ends name servers that podman left running for networks that no longer exist.

Such a process holds an address that the next network needs.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import docker

from cellblock.cluster.engine.container_specs import network_name

# podman 4.3 starts one for each network (CNI's plugin dnsname), and ends it with the last container:
# where that fails, as on a full disk, it stays, and no container of a new network with that address starts.
_NETWORKS = Path("/etc/cni/net.d")
_COMMAND = re.compile(rb"/dnsmasq\0.*--conf-file=/run/containers/cni/dnsname/([^/\0]+)/dnsmasq\.conf\0", re.S)


def end_left_over(client: docker.DockerClient) -> None:
    """End those of clusters' networks that are gone. Raises docker.errors.DockerException."""
    found = {pid: name for pid, name in _running() if name.startswith(network_name(""))}
    # Another podman of this machine may have networks, too, that this one does not know.
    gone = {pid: name for pid, name in found.items() if not (_NETWORKS / f"{name}.conflist").exists()}
    if not gone:
        return
    known = {network.name for network in client.networks.list()}
    for pid, name in gone.items():
        if name not in known:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)


def _running() -> list[tuple[int, str]]:
    """Number and network of each of this machine's."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            match = _COMMAND.search((folder / "cmdline").read_bytes())
            if match:
                found.append((int(folder.name), match[1].decode(errors="replace")))
    return found
