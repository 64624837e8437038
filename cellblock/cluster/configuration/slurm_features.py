# SPDX-License-Identifier: Apache-2.0
"""Says which features a release of Slurm has, as distributions package it.

The templates of slurm.conf ask it, and so does code that depends on a feature.
"""

from __future__ import annotations

from dataclasses import dataclass

# Releases whose packages in Debian and Ubuntu hold the PMIx plugin. From 25.11 they are built without
# it (seen in 26.05.5-1); srun then starts MPI programs by PMI-2 or through Open MPI's own daemons.
_PMIX_UNTIL = "24.11"


@dataclass(frozen=True)
class SlurmFeatures:
    """What templates see as `slurm`: the release and what follows from it."""

    release: str
    plugin_dir: str

    @property
    def auth_slurm(self) -> bool:
        """Whether the images have sackd (Slurm has auth/slurm since 23.11, with slurm.jwks since 24.05)."""
        return self.release >= "24.11"

    @property
    def dynamic_nodes(self) -> bool:
        """Whether slurmd can register a node that slurm.conf does not name (-Z, since 22.05)."""
        return self.release >= "22.05"

    @property
    def cgroup_v2(self) -> bool:
        """Whether the release has the cgroup/v2 plugin (since 22.05)."""
        return self.release >= "22.05"

    @property
    def tells_addresses(self) -> bool:
        """Whether nodes of State=CLOUD tell their address when they register, unasked (since 23.11)."""
        return self.release >= "23.11"

    @property
    def hides_nodes(self) -> bool:
        """Whether nodes of State=CLOUD that are off are hidden unless asked for (until 23.02)."""
        return self.release < "23.02"

    @property
    def wakes_only_nodes(self) -> bool:
        """Whether slurmctld reaches a waiting srun on nodes alone (seen in 22.05, no longer in 24.11).

        Elsewhere an srun that waits for another step of its job asks again after SlurmctldTimeout.
        """
        return self.release < "24.11"

    @property
    def openmetrics(self) -> bool:
        """Whether slurmctld serves its own metrics (from 25.11.5; earlier ones can end by it)."""
        return self.release >= "26.05"

    @property
    def topology_yaml(self) -> bool:
        """Whether trees are in topology.yaml, and nodes that register themselves say where they are.

        Since 25.05. Before, slurmctld gives no job to such a node once there is a topology.conf (seen in
        24.11).
        """
        return self.release >= "25.05"

    @property
    def topology_block(self) -> bool:
        """Whether slurmctld knows blocks of nodes (seen in 24.11; not in 22.05)."""
        return self.release >= "24.11"

    @property
    def pmix(self) -> bool:
        """Whether `srun --mpi=pmix` works."""
        return self.release <= _PMIX_UNTIL
