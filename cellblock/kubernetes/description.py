# SPDX-License-Identifier: Apache-2.0
"""Works out what all objects need from the cluster file: names, addresses, and values for templates.

Pods of a StatefulSet are called NAME-0, NAME-1 and so on, and so are their hosts: the API gives them no other
name. Slurm's daemons are therefore told both: how a host calls itself, and where it is reached.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from cellblock.cluster.configuration import config_files, template_facts
from cellblock.cluster.configuration.slurm_features import SlurmFeatures
from cellblock.cluster.configuration.template_facts import ClusterFacts, NodeSetFacts
from cellblock.cluster.definition.amounts import mebibytes
from cellblock.cluster.definition.cluster_file import ClusterFile
from cellblock.cluster.definition.kubernetes_part import Kubernetes
from cellblock.cluster.definition.model import Role, SlurmVariant
from cellblock.cluster.definition.node_set import NodeSet
from cellblock.errors import UsageError
from cellblock.kubernetes import topology

CONTROLLER_PORT = 6817
"""SlurmctldPort; slurm.conf(5)."""
ACCOUNTING_PORT = 6819
"""DbdPort; slurmdbd.conf(5)."""
NODE_PORT = 618
"""SlurmdPort of deploy/slurm/slurm.conf.j2."""
REST_PORT = 6820
METRICS_PORT = 9341
DATABASE_PORT = 3306
SSH_PORT = 22

NODES = "nodes"
"""The headless Service of nodes and login nodes: one search domain makes their names names of hosts."""

# Ordinals of nodes that gres.conf names: a set is scaled without it. MaxNodeCount is at least that.
_LEAST_NODES = 1024
# A share of the pod's memory, where the local cluster's plan says one of the machine's.
_TMP_SHARE = 10


@dataclass(frozen=True)
class Description:
    """The cluster on Kubernetes: its file, its variant, and what the objects' annotations say of them."""

    file: ClusterFile
    variant: SlurmVariant
    source: str
    """The cluster file's name and digest."""
    version: str
    """Of Cellblock."""

    @property
    def place(self) -> Kubernetes:
        """The part `kubernetes` of the file."""
        assert self.file.kubernetes
        return self.file.kubernetes

    @property
    def controllers(self) -> tuple[str, ...]:
        """The hosts of slurmctld, as they call themselves."""
        return tuple(f"controller-{number}" for number in range(self.file.controller.replicas))

    @property
    def controller_addresses(self) -> str:
        """Where slurmctld is reached, as CELLBLOCK_CONTROLLER has it: each has a Service of its name."""
        return ",".join(f"{host}:{CONTROLLER_PORT}" for host in self.controllers)

    @property
    def most_nodes(self) -> int:
        """Nodes that the cluster can be scaled to without another slurm.conf."""
        return max(_LEAST_NODES, 2 * len(self.file.nodes))

    @property
    def search_domain(self) -> str:
        """Where the names of nodes and login nodes are looked for."""
        return f"{NODES}.{self.place.namespace}.svc.{self.place.domain}"

    def image(self, name: str) -> str:
        """Where the image `name` is pulled from. Raises UsageError when the file does not say."""
        place = self.place
        if name in place.images:
            return place.images[name]
        if place.registry is None:
            raise UsageError(
                f"neither kubernetes.registry nor kubernetes.images says where the image '{name}' is",
                hint=f"add `registry: HOST/PATH`, or `images: {{{name}: HOST/PATH:TAG}}`, to `kubernetes`",
            )
        return f"{place.registry}/{name}:{place.tag or self.variant.name}"

    def image_of(self, role: Role) -> str:
        """The image that pods of `role` run; a node set's is `image(one.image or "worker")`."""
        return self.image(self.file.image_of(role))


def describe(file: ClusterFile, variant: SlurmVariant, source: str, version: str) -> Description:
    """The cluster of `file` on Kubernetes. Raises UsageError for what cannot run there."""
    if not SlurmFeatures(variant.release, variant.plugin_dir).dynamic_nodes:
        raise UsageError(
            f"variant {variant.name} has Slurm {variant.release}, whose nodes cannot register themselves, as "
            "pods must",
            hint="take a variant of Slurm 22.05 or later, such as debian13",
        )
    if file.kubernetes is None:
        raise UsageError(
            "the cluster file has no part `kubernetes`",
            hint="add `kubernetes: {registry: HOST/PATH}`, where `build.py push HOST/PATH` put the images",
        )
    features = SlurmFeatures(variant.release, variant.plugin_dir)
    topology.check(file, variant, features)
    return Description(file, variant, source, version)


def cluster_facts(cluster: Description) -> ClusterFacts:
    """What the templates of Slurm's configuration see."""
    # Each set says what it has (ClusterFile): the machine's share is nobody's.
    facts = template_facts.facts(cluster, 1, 1)
    last = cluster.most_nodes - 1
    places = topology.places(cluster.file)
    accounting = facts.accounting
    return replace(
        facts,
        controllers=cluster.controllers,
        gres=tuple(
            (f"{one.name}-[1-{one.count}]" if one.on_demand else f"{one.name}-[0-{last}]", kind, count)
            for one in cluster.file.node_sets
            for kind, count in one.gres.items()
        ),
        # A pod has a part of a machine.
        overstated=True,
        detects_gpus=True,
        max_nodes=cluster.most_nodes,
        login=f"login-[0-{cluster.place.login.replicas - 1}]",
        accounting=accounting and replace(accounting, own_host="accounting-0"),
        node_sets=tuple(
            replace(one, place=f"{facts.topology_name}:{places[one.name]}")
            if one.name in places and not one.on_demand
            else one
            for one in facts.node_sets
        ),
        block_size=cluster.place.topology_block,
        leaves=topology.leaves(facts.node_sets, places),
    )


def set_facts(facts: ClusterFacts, one: NodeSet) -> NodeSetFacts:
    """The facts of the node set `one`."""
    return next(each for each in facts.node_sets if each.name == one.name)


def configuration(cluster: Description, facts: ClusterFacts, templates: Path | None = None) -> dict[str, str]:
    """Path -> text of Slurm's configuration; each node set has a folder of its own, worker-NAME."""
    cgroup = template_facts.cgroup_for(cluster, cluster.place.cgroup)
    texts = config_files.render(cluster, facts, cgroup, templates)
    texts.pop("worker/jail.fstab")
    health = texts.pop("worker/health.conf", None)
    for one in cluster.file.node_sets:
        memory = mebibytes(one.resources.memory or "1Gi")
        shm = mebibytes(one.shm) if one.shm else max(memory // 2, 1)
        own = replace(facts, shm=f"{shm}m", tmp=f"{max(memory // _TMP_SHARE, 1)}m")
        rendered = config_files.render(cluster, own, cgroup, templates)
        texts[f"worker-{one.name}/jail.fstab"] = rendered["worker/jail.fstab"]
        if health:
            texts[f"worker-{one.name}/health.conf"] = health
    return texts
