# SPDX-License-Identifier: Apache-2.0
"""Renders deploy/slurm: Slurm's configuration and the mount plans of a cluster.

One folder a mount: config/slurm is /etc/slurm of controller and login (slurmctld hands its .conf files to
the workers), config/worker and config/login are /etc/cellblock there.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import jinja2

from cellblock import paths
from cellblock.cluster.host import CgroupMode
from cellblock.cluster.model import ClusterSpec, JailRoot
from cellblock.errors import CellblockError

# Output below config/ -> template below deploy/slurm, whose `role` is the output's folder.
TEMPLATES = {
    "slurm/slurm.conf": "slurm.conf.j2",
    "slurm/cgroup.conf": "cgroup.conf.j2",
    "slurm/plugstack.conf": "plugstack.conf.j2",
    "slurm/job_submit.lua": "job_submit.lua",
    "worker/jail.fstab": "jail.fstab.j2",
    "login/jail.fstab": "jail.fstab.j2",
}

# Releases whose packages in Debian and Ubuntu hold the PMIx plugin. From 25.11 they are built without
# it (seen in 26.05.5-1); srun then starts MPI programs by PMI-2 or through Open MPI's own daemons.
_PMIX_UNTIL = "24.11"


@dataclass(frozen=True)
class SlurmFeatures:
    """What templates see as `slurm`: the release and what follows from it."""

    release: str
    plugin_dir: str

    @property
    def dynamic_nodes(self) -> bool:
        """Whether slurmd can register a node that slurm.conf does not name (-Z, since 22.05)."""
        return self.release >= "22.05"

    @property
    def cgroup_v2(self) -> bool:
        """Whether the release has the cgroup/v2 plugin (since 22.05)."""
        return self.release >= "22.05"

    @property
    def wakes_only_nodes(self) -> bool:
        """Whether slurmctld reaches a waiting srun on nodes alone (seen in 22.05, no longer in 24.11).

        Elsewhere an srun that waits for another step of its job asks again after SlurmctldTimeout.
        """
        return self.release < "24.11"

    @property
    def pmix(self) -> bool:
        """Whether `srun --mpi=pmix` works."""
        return self.release <= _PMIX_UNTIL


@dataclass(frozen=True)
class ClusterFacts:
    """What templates see as `cluster`."""

    name: str
    workers: int
    cpus: int
    node_memory_mb: int
    memory_per_cpu_mb: int
    jail_root: JailRoot = "nobody"
    controller: str = "controller"
    # More than a machine runs; costs slurmctld a few bytes each.
    max_nodes: int = 256


def cgroup_for(spec: ClusterSpec, mode: CgroupMode) -> CgroupMode:
    """How the cluster's Slurm can use what the host has."""
    features = SlurmFeatures(spec.variant.release, spec.variant.plugin_dir)
    return mode if features.cgroup_v2 else "disabled"


def facts(spec: ClusterSpec, cpus: int, memory_mb: int) -> ClusterFacts:
    """How the machine's processors and memory are told to Slurm.

    Every worker sees all processors (they are only shared); memory is divided, with a tenth left
    for the daemons, because two workers that promise the same memory would break the promise.
    """
    node_memory = max(memory_mb * 9 // 10 // spec.workers, 64)
    return ClusterFacts(
        spec.name, spec.workers, cpus, node_memory, max(node_memory // cpus, 1), spec.jail_root
    )


def render(
    spec: ClusterSpec, cluster: ClusterFacts, cgroup: CgroupMode, templates: Path | None = None
) -> dict[str, str]:
    """Path below config/ -> text. `cgroup` is as `cgroup_for` says. Raises CellblockError."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates or paths.PROJECT / "deploy" / "slurm"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    context = {
        "cluster": cluster,
        "slurm": SlurmFeatures(spec.variant.release, spec.variant.plugin_dir),
        "cgroup": cgroup,
    }
    texts = {}
    for target, source in TEMPLATES.items():
        try:
            role = target.partition("/")[0]
            texts[target] = environment.get_template(source).render(context, role=role)
        except jinja2.TemplateError as error:
            raise CellblockError(
                f"deploy/slurm/{source}: {error}", hint=f"templates know: {', '.join(context)}"
            ) from error
    return texts


def write(folder: Path, texts: dict[str, str]) -> None:
    """Replace `folder` by `texts`: owned by root and readable by all, as slurmd and the jail demand."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
        for name, text in texts.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o644)
            path.parent.chmod(0o755)
    except OSError as error:
        raise CellblockError(
            f"{error.filename or folder}: cannot be written: {error.strerror}",
            hint="make room, or set CELLBLOCK_STATE to a folder that can be written",
        ) from error
