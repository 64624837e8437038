# SPDX-License-Identifier: Apache-2.0
"""Makes the templates of pods of nodes on demand, and the role that allows to create such pods.

node_pods.py has the container that creates them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from cellblock.cluster.configuration.template_facts import ClusterFacts
from cellblock.cluster.definition.amounts import seconds
from cellblock.cluster.definition.node_set import NodeSet
from cellblock.kubernetes.description import Description
from cellblock.kubernetes.metadata import Object, made_from, metadata
from cellblock.kubernetes.node_pods import COMPONENT, sets
from cellblock.kubernetes.nodes import node_pod

START_WITHIN = "cellblock.org/start-within"
"""An annotation of a template: seconds that its nodes may take to start."""


def objects(cluster: Description, facts: ClusterFacts) -> Iterator[Object]:
    """The templates, and the right to make pods of them: in this namespace, where nothing else is."""
    yield {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(cluster, COMPONENT, COMPONENT),
        "data": {f"{one.name}.json": _template(cluster, facts, one) for one in sets(cluster)},
    }
    yield {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata(cluster, COMPONENT, COMPONENT),
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete", "get", "list"]},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
        ],
    }
    yield {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(cluster, COMPONENT, COMPONENT),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": COMPONENT},
        "subjects": [{"kind": "ServiceAccount", "name": "controller", "namespace": cluster.place.namespace}],
    }


def node_set(cluster: Description, one: NodeSet, files: Mapping[str, str]) -> Iterator[Object]:
    """What there is of set `one` besides its pods; `files` are its mount plan and what else nodes read.

    Kustomize finds no names in a template: the ConfigMap of these files keeps its own. There is no budget of
    disruptions, for Kubernetes counts the pods of one by what made them; an eviction waits for the jobs.
    """
    yield {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(cluster, plan_name(one), "worker"),
        "data": dict(files),
    }


def plan_name(one: NodeSet) -> str:
    """The ConfigMap of the mount plan of set `one`."""
    return f"worker-{one.name}-configuration"


def _template(cluster: Description, facts: ClusterFacts, one: NodeSet) -> str:
    assert one.on_demand
    template = node_pod(cluster, facts, one, plan_name(one)).template(cluster)
    within = {START_WITHIN: str(seconds(one.on_demand.start_within))}
    template["metadata"]["annotations"] = {**made_from(cluster), **within}
    return json.dumps(template, indent=1) + "\n"
