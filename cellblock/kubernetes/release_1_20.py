# SPDX-License-Identifier: Apache-2.0
"""Rewrites manifests for Kubernetes 1.20: leaves out the fields that came with later releases.

Only tests and the benchmark of Kubernetes call it. They run 1.20, the newest release that can be built from
a source package of Debian. What `build.py render kubernetes` writes for sites is not changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cellblock.kubernetes.metadata import Object

# Kind -> what its API was called then.
_VERSIONS = {"PodDisruptionBudget": "policy/v1beta1", "CronJob": "batch/v1beta1"}
# Kind -> fields of its `spec` that came later, and the release that brought them.
_FIELDS = {
    "StatefulSet": {"ordinals": "1.27"},
    "Job": {"podFailurePolicy": "1.25", "completionMode": "1.21"},
    "CronJob": {"timeZone": "1.25"},
}
# Of pods' security contexts: AppArmor was an annotation until 1.30.
_CONTEXT = {"appArmorProfile": "1.30"}
# Settings of a pod's network that count as safe since 1.22.
_SYSCTLS = {"net.ipv4.ip_unprivileged_port_start"}
# Of what `kubectl apply -k` is told to make, since 1.21.
_GENERATED = "immutable"
# Of a NetworkPolicy's port, since 1.21.
_END_PORT = "endPort"


def for_1_20(manifest: Object) -> Object:
    """`manifest` as Kubernetes 1.20 takes it."""
    kind = manifest["kind"]
    if kind == "Kustomization":
        return {**manifest, "generatorOptions": _without(manifest["generatorOptions"], {_GENERATED})}
    out: Object = _without(manifest, {*_CONTEXT, _END_PORT})
    out["apiVersion"] = _VERSIONS.get(kind, manifest["apiVersion"])
    if kind == "ConfigMap":
        # Templates of pods (on_demand.py).
        out["data"] = {
            key: json.dumps(_without(json.loads(text), set(_CONTEXT))) if key.endswith(".json") else text
            for key, text in out["data"].items()
        }
    for name in _FIELDS.get(kind, {}):
        out["spec"].pop(name, None)
    return out


def _without(value: Any, names: set[str]) -> Any:
    if isinstance(value, Mapping):
        made = {key: _without(one, names) for key, one in value.items() if key not in names}
        if "sysctls" in made:
            left = [one for one in made["sysctls"] if one["name"] not in _SYSCTLS]
            made = {**made, "sysctls": left} if left else {k: v for k, v in made.items() if k != "sysctls"}
        return made
    if isinstance(value, list):
        return [_without(one, names) for one in value]
    return value
