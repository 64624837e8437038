# SPDX-License-Identifier: Apache-2.0
"""Attacks by a user's own slurmctld, which gives slurmd a configuration that names what slurmd loads."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cellblock.cluster.engine.container_specs import container_name
from tests.integration.escape.arena import Outcome, broken, escaped, held, read
from tests.integration.escape.vouching import SLURM, vouching_of
from tests.integration.local_cluster import LocalCluster

_CONFIGURATION = """ClusterName=rogue
SlurmctldHost={worker}(127.0.0.1)
SlurmctldPort=16817
SlurmctldParameters=enable_configless
AuthType=auth/munge
SlurmUser={slurm_user}
StateSaveLocation={folder}
SlurmctldPidFile={folder}/pid
SlurmdSpoolDir=/var/spool/slurmd
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
NodeName=rogue NodeAddr={worker} Port=618
PartitionName=main Nodes=ALL
"""

_CACHE = "/var/spool/slurmd/conf-cache/plugstack.conf"


@dataclass(frozen=True)
class Place:
    """An empty folder of the jail: as this machine sees it, and from inside."""

    outside: Path
    inside: str


def configure_slurmd(
    cluster: LocalCluster,
    worker: str,
    place: Place,
    mark: str,
    run: Callable[[str], object],
    slurm_user: str = "root",
) -> Outcome:
    """Try it on `worker`, whose slurmd may end by it. `run` has root inside run a script there.

    `slurm_user` is who the rogue obeys: whoever munge says root inside is.
    """
    if vouching_of(cluster) == SLURM:
        # It has no key but one of its own, which nobody believes, and by another name it does not start.
        return Outcome("absent", "a slurmctld that asks a socket for its words")
    here, out = place.inside, place.outside
    good = cluster.on(worker, "cat", _CACHE).ok()
    program = out / "slurmctld"
    controller = container_name(cluster.request.name, "controller")
    with program.open("wb") as file:
        subprocess.run(["podman", "exec", controller, "cat", "/usr/sbin/slurmctld"], stdout=file, check=True)
    program.chmod(0o755)
    text = _CONFIGURATION.format(worker=worker, folder=here, slurm_user=slurm_user)
    (out / "slurm.conf").write_text(text)
    (out / "plugstack.conf").write_text(f"# {mark}\n{good}")
    run(
        f"export SLURM_CONF={here}/slurm.conf; cd {here}\n"
        "timeout 8 ./slurmctld -D -i -f $SLURM_CONF >log 2>&1 &\n"
        # Until it answers.
        "for i in $(seq 50); do scontrol ping | grep -q UP && break; sleep 0.1; done\n"
        "scontrol reconfigure >>said 2>&1; echo asked $? >>said; sleep 2; kill %1; wait"
    )
    said = read(out / "said")
    # 0: the rogue obeyed, and so told slurmd.
    if "asked 0" not in said:
        return broken(f"the rogue did not run: {said}{read(out / 'log')}")
    # Also of a container that has ended.
    name = container_name(cluster.request.name, worker)
    copied = subprocess.run(["podman", "cp", f"{name}:{_CACHE}", str(out / "found")], capture_output=True)
    if copied.returncode:
        # Seen with Slurm 22.05.
        return escaped(f"slurmd obeyed, and lost its own plugstack.conf: {copied.stderr.decode()}")
    if mark in read(out / "found"):
        return escaped("slurmd took its plugstack.conf")
    return held(said.strip().splitlines()[-1])
