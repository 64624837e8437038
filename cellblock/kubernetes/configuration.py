# SPDX-License-Identifier: Apache-2.0
"""Makes the ConfigMaps: that of Slurm's configuration, and those whose names contain a hash of their content.

Pods that mount a ConfigMap start anew when its name changes. Slurm's configuration needs no new start, so the
name of its ConfigMap stays: the controller reads it while it runs, and hands it to the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

from cellblock.kubernetes.description import Description
from cellblock.kubernetes.metadata import Object, metadata

CONFIGURATION = "slurm-configuration"
"""The ConfigMap of /etc/slurm."""


def slurm_config_map(cluster: Description, texts: Mapping[str, str]) -> Object:
    """Slurm's configuration, from `texts` below slurm/."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(cluster, CONFIGURATION, "controller"),
        "data": {
            name.partition("/")[2]: text for name, text in sorted(texts.items()) if name.startswith("slurm/")
        },
    }


def generated_files(cluster: Description, texts: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """ConfigMap -> file -> text: those that kustomize makes."""
    keys = "".join(f"{key}\n" for key in cluster.place.login.authorized_keys)
    made: dict[str, dict[str, str]] = {"login-configuration": {"authorized_keys": keys}}
    for path, text in sorted(texts.items()):
        folder, _, file = path.partition("/")
        if folder != "slurm":
            made.setdefault(f"{folder}-configuration", {})[file] = text
    return made
