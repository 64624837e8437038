# SPDX-License-Identifier: Apache-2.0
"""Makes Slurm's topology from the label of Kubernetes' machines that the key `kubernetes.topology` names.

The label says where a machine is, for example its rack. description.py passes the topology on to templates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cellblock.cluster.configuration.slurm_features import SlurmFeatures
from cellblock.cluster.configuration.template_facts import NodeSetFacts
from cellblock.cluster.definition.cluster_file import ClusterFile
from cellblock.cluster.definition.model import SlurmVariant
from cellblock.errors import UsageError


def check(file: ClusterFile, variant: SlurmVariant, features: SlurmFeatures) -> None:
    """Raise UsageError for a topology that this release of Slurm cannot have."""
    place = file.kubernetes
    assert place
    staying = [one.name for one in file.node_sets if not one.on_demand]
    if place.topology and staying and not features.topology_yaml:
        raise UsageError(
            f"kubernetes.topology: Slurm {variant.release} of variant {variant.name} gives no job to nodes "
            f"that register themselves where there is a topology, as those of set '{staying[0]}'",
            hint="give all sets `on_demand`, take a variant of Slurm 25.05 or later, such as debian14, or "
            "leave kubernetes.topology out",
        )
    if place.topology_block and not place.topology:
        raise UsageError(
            "kubernetes.topology_block goes with kubernetes.topology",
            hint="name the label whose values are the blocks, as `topology: topology.kubernetes.io/rack`",
        )
    if place.topology_block and not features.topology_block:
        raise UsageError(
            f"kubernetes.topology_block: Slurm {variant.release} of variant {variant.name} knows no blocks",
            hint="take a variant of Slurm 24.11 or later, such as debian13, or leave it out: a tree is made",
        )


def places(file: ClusterFile) -> dict[str, str]:
    """Node set -> the value of the label that says where machines are; nothing without one."""
    label = file.kubernetes.topology if file.kubernetes else None
    return {one.name: one.node_selector[label] for one in file.node_sets} if label else {}


def leaves(node_sets: Iterable[NodeSetFacts], places: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Each place, and the nodes there that slurm.conf knows before they register: those on demand."""
    found = tuple(node_sets)
    return tuple(
        (leaf, ",".join(one.hosts for one in found if one.on_demand and places[one.name] == leaf))
        for leaf in sorted(set(places.values()))
    )
