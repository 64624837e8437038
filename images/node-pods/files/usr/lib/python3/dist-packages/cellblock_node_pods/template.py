# SPDX-License-Identifier: Apache-2.0
"""Reads the templates of pods, one file SET.json for each node set, and makes pods from them.

cellblock/kubernetes/on_demand.py writes these templates.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# An annotation of a template: seconds that its nodes may take to start.
START_WITHIN = "cellblock.org/start-within"
# What pods of ours have as a label, so that no others are looked at.
ON_DEMAND = "cellblock.org/on-demand"
_LABEL_OF_INSTANCE = "app.kubernetes.io/instance"


class TemplateFault(Exception):
    """A template cannot be read."""


@dataclass(frozen=True)
class Template:
    """How the pods of a set are made."""

    start_s: float
    pod: Mapping[str, Any]


def read_templates(folder: Path) -> dict[str, Template]:
    """Set -> template. They may change while this program runs. Raises TemplateFault."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            start_s = float(data["metadata"]["annotations"][START_WITHIN])
            data["metadata"]["labels"][_LABEL_OF_INSTANCE], data["spec"]["containers"][0]
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            raise TemplateFault(f"{path}: {type(error).__name__}: {error}") from error
        found[path.stem] = Template(start_s, data)
    return found


def make_pod(template: Template, node: str, service: str) -> dict[str, Any]:
    """The pod of `node`, whose name is one of `service`."""
    pod = copy.deepcopy(dict(template.pod))
    meta = pod["metadata"]
    meta["name"] = node
    meta["labels"] = {**meta["labels"], ON_DEMAND: "yes"}
    pod["spec"] = {**pod["spec"], "hostname": node, "subdomain": service, "restartPolicy": "Always"}
    return {"apiVersion": "v1", "kind": "Pod", **pod}
