# SPDX-License-Identifier: Apache-2.0
"""Makes the NetworkPolicies: which pods may open connections to which, at which ports.

Jobs may reach each other and the world. The pods of Slurm's daemons reach only each other. The site's network
plugin enforces the policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cellblock.kubernetes import description as names
from cellblock.kubernetes.description import Description
from cellblock.kubernetes.metadata import Object, labels, metadata

_DNS = 53
# What clouds tell machines about themselves, credentials among it.
_LINK_LOCAL = ("169.254.0.0/16",)
_LINK_LOCAL_6 = ("fe80::/10", "fd00:ec2::254/128")
_MOST_PORT = 65535


def policies(cluster: Description, components: Iterable[str]) -> Iterator[Object]:
    """The policies of a cluster whose pods are of `components`."""
    there = set(components)

    def pods(*wanted: str) -> list[Object]:
        chosen = [each for each in wanted if each in there]
        return [{"podSelector": {"matchLabels": labels(cluster, each)}} for each in chosen]

    anybody: list[Object] = [{"namespaceSelector": {}}]
    daemons = pods("controller", "worker", "login", "rest", "accounting", "metrics", "health")
    clients = pods("controller", "worker", "login", "rest", "metrics", "health")
    control = _ports(names.CONTROLLER_PORT)
    to_control = _rule("to", pods("controller"), control)
    to_accounting = _rule("to", pods("accounting"), _ports(names.ACCOUNTING_PORT))
    to_nodes = _rule("to", pods("worker"), _ports(names.NODE_PORT))
    dns = {"ports": [{"port": _DNS, "protocol": "UDP"}, {"port": _DNS, "protocol": "TCP"}]}
    yield {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(cluster, "nothing-else", "network"),
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    }
    # Kubernetes' API, wherever it is: the container that makes pods asks it.
    api = [{"ports": _ports(443, 6443)}] if any(one.on_demand for one in cluster.file.node_sets) else []
    # slurmctld tells nodes, waiting sruns at any port of theirs, and slurmdbd.
    yield _policy(
        cluster,
        "controller",
        [_rule("from", daemons, control)],
        [
            *(to_control, to_nodes, to_accounting, dns, *api),
            _rule("to", pods("login", "worker", "health"), _high_ports()),
        ],
    )
    # srun on a node or login node, or of a job that measures nodes, is spoken to by the steps of its job, at
    # ports that the kernel chooses.
    yield _policy(
        cluster,
        "worker",
        [
            _rule("from", pods("worker"), []),
            _rule("from", pods("controller", "login", "health"), [*_ports(names.NODE_PORT), *_high_ports()]),
            _rule("from", pods("login"), _ports(names.SSH_PORT)),
        ],
        [*_world(cluster)],
    )
    yield _policy(
        cluster,
        "login",
        [_rule("from", pods("controller", "worker"), _high_ports()), {"ports": _ports(names.SSH_PORT)}],
        [*_world(cluster)],
    )
    if "health" in there:
        yield _policy(
            cluster,
            "health",
            [_rule("from", pods("controller", "worker"), _high_ports())],
            [to_control, to_nodes, *([to_accounting] if "accounting" in there else []), dns],
        )
    if "accounting" in there:
        ingress = [_rule("from", clients, _ports(names.ACCOUNTING_PORT))]
        egress = [to_control, dns]
        if "database" in there:
            egress.append(_rule("to", pods("database"), _ports(names.DATABASE_PORT)))
        else:
            # The site's: it is somewhere.
            egress.append({"ports": _ports(cluster_database_port(cluster))})
        yield _policy(cluster, "accounting", ingress, egress)
    if "database" in there:
        yield _policy(
            cluster, "database", [_rule("from", pods("accounting"), _ports(names.DATABASE_PORT))], []
        )
    if "rest" in there:
        accounted = [to_accounting] if "accounting" in there else []
        yield _policy(
            cluster, "rest", [_rule("from", anybody, _ports(names.REST_PORT))], [to_control, *accounted, dns]
        )
    if "metrics" in there:
        yield _policy(
            cluster, "metrics", [_rule("from", anybody, _ports(names.METRICS_PORT))], [to_control, dns]
        )


def cluster_database_port(cluster: Description) -> int:
    """The port of the accounting's database."""
    external = cluster.file.accounting.external if cluster.file.accounting else None
    return external.port if external else names.DATABASE_PORT


def _policy(cluster: Description, component: str, ingress: list[Object], egress: list[Object]) -> Object:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(cluster, component, component),
        "spec": {
            "podSelector": {"matchLabels": labels(cluster, component)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            # An empty list is none to the API, which would find it changed by each `kubectl apply`.
            **({"egress": [rule for rule in egress if rule.get("to", True)]} if egress else {}),
        },
    }


def _rule(direction: str, peers: list[Object], ports: list[Object]) -> Object:
    return {direction: peers, **({"ports": ports} if ports else {})}


def _ports(*ports: int) -> list[Object]:
    return [{"port": port, "protocol": "TCP"} for port in ports]


def _high_ports() -> list[Object]:
    return [{"port": 1024, "endPort": _MOST_PORT, "protocol": "TCP"}]


def _world(cluster: Description) -> Iterator[Object]:
    """Everything but what a machine's own network offers to it alone, and what the site closes."""
    closed = cluster.place.closed_to_jobs
    blocks: Mapping[str, tuple[str, ...]] = {
        "0.0.0.0/0": (*_LINK_LOCAL, *(one for one in closed if ":" not in one)),
        "::/0": (*_LINK_LOCAL_6, *(one for one in closed if ":" in one)),
    }
    yield {"to": [{"ipBlock": {"cidr": cidr, "except": list(without)}} for cidr, without in blocks.items()]}
    # A plugin may take addresses of pods for no addresses of a block.
    yield {"to": [{"podSelector": {}}]}
    yield {"ports": [{"port": _DNS, "protocol": "UDP"}, {"port": _DNS, "protocol": "TCP"}]}
