# SPDX-License-Identifier: Apache-2.0
"""Makes the labels and annotations of objects, and writes objects as YAML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from cellblock.kubernetes.description import Description

Object = dict[str, Any]

NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
INSTANCE = "app.kubernetes.io/instance"
NODE_SET = "cellblock.org/node-set"
VERSION = "cellblock.org/version"
CLUSTER_FILE = "cellblock.org/cluster-file"


def labels(cluster: Description, component: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The labels of objects of `component`."""
    return {NAME: "cellblock", INSTANCE: cluster.file.name, COMPONENT: component, **(more or {})}


def metadata(
    cluster: Description, name: str, component: str, more: Mapping[str, str] | None = None
) -> Object:
    """The metadata of an object: what it is called, belongs to, and was made from."""
    return {
        "name": name,
        "namespace": cluster.place.namespace,
        "labels": labels(cluster, component, more),
        "annotations": made_from(cluster),
    }


def made_from(cluster: Description) -> dict[str, str]:
    """What an object was made from."""
    return {CLUSTER_FILE: cluster.source, VERSION: cluster.version}


class _Dumper(yaml.SafeDumper):
    """Lists are indented below their key, texts of several lines are blocks, and nothing is an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def dump(objects: Iterable[Object]) -> str:
    """The YAML of `objects`, one document each; the same objects make the same text."""
    texts = (yaml.dump(one, Dumper=_Dumper, sort_keys=False, width=1000) for one in objects)
    return "---\n".join(texts)
