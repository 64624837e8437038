# SPDX-License-Identifier: Apache-2.0
"""Renders a cluster file that uses every key, and finds objects in the result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from cellblock.cluster.definition.cluster_file import load_cluster_file
from cellblock.cluster.definition.model import SlurmVariant
from cellblock.kubernetes.description import Description, describe
from cellblock.kubernetes.render import render

FILE = """\
name: pods
variant: debian13
accounting: {}
rest: {replicas: 2}
metrics: {interval: 15}
health: {leave_out: [disk]}
node_sets:
  - name: cpu
    count: 2
    features: [cheap]
    resources: {cpu: 4, memory: 8Gi}
  - name: h100
    count: 40
    resources: {cpu: 96, memory: 1Ti}
    gres: {"gpu:h100": 8, fpga: 2}
    shm: 64Gi
    grace: 2h
    spread: required
    node_selector: {pool: gpu}
    tolerations: ["nvidia.com/gpu:NoSchedule", "pool=gpu"]
partitions:
  - {name: main, default: true, node_sets: [cpu]}
  - {name: gpu, node_sets: [h100], max_time: 7d}
kubernetes:
  namespace: hpc
  registry: registry.example/cellblock
  images: {worker: "registry.example/own/worker:3"}
  pull_secrets: [pull]
  priority_class: high
  node_selector: {pool: system}
  tolerations: ["system=yes:NoExecute"]
  jail: {size: 2Ti, storage_class: shared, shards: 4, backup: {repository: "s3:https://s3.example/jails"}}
  login: {type: LoadBalancer, replicas: 3, authorized_keys: ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB ada"]}
"""

# By libyaml, where PyYAML has it: Python's own takes ten times as long, and tests read objects many times.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

SLURM = SlurmVariant("debian13", "24.11", "/usr/lib/x86_64-linux-gnu/slurm-wlm")


def described(folder: Path, text: str = FILE, variant: SlurmVariant = SLURM) -> Description:
    """The cluster of a file with `text`."""
    path = folder / "cluster.yaml"
    path.write_text(text)
    return describe(load_cluster_file(path), variant, "cluster.yaml@0123456789ab", "1.2.3")


def objects(texts: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The objects of rendered texts, without the kustomization."""
    for name, text in texts.items():
        if name.endswith(".yaml") and name != "kustomization.yaml":
            yield from yaml.load_all(text, Loader=_LOADER)


def found(texts: dict[str, str], kind: str, name: str) -> dict[str, Any]:
    """The one object of that kind and name."""
    (one,) = [each for each in objects(texts) if each["kind"] == kind and each["metadata"]["name"] == name]
    return one


def rendered(folder: Path, text: str = FILE, variant: SlurmVariant = SLURM) -> dict[str, str]:
    """What a file with `text` is rendered as."""
    return render(described(folder, text, variant))
