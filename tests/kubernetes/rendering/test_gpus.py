# SPDX-License-Identifier: Apache-2.0
"""GPUs of a node set: asked of Kubernetes, told to Slurm, and their driver shown to jobs in the jail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.helpers.rendered import FILE, found, rendered
from tests.kubernetes_schemas import VERSIONS, check

_PARTS = "NVIDIA_DRIVER_CAPABILITIES"
_RUNTIME = FILE.replace("    shm: 64Gi\n", "    shm: 64Gi\n    runtime_class: nvidia\n")


def pod(folder: Path, name: str, text: str = _RUNTIME) -> dict[str, Any]:
    """The pod of a node set, with `environment` besides."""
    spec: dict[str, Any] = found(rendered(folder, text), "StatefulSet", name)["spec"]["template"]["spec"]
    (slurmd,) = spec["containers"]
    return {**spec, "environment": {one["name"]: one["value"] for one in slurmd["env"]}}


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_it(version: str, tmp_path: Path) -> None:
    check(found(rendered(tmp_path, _RUNTIME), "StatefulSet", "h100"), version)


def test_the_runtime_shows_the_whole_driver_and_the_jail_what_it_finds(tmp_path: Path) -> None:
    gpus, others = pod(tmp_path, "h100"), pod(tmp_path, "cpu")
    assert gpus["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert (gpus["runtimeClassName"], gpus["environment"][_PARTS]) == ("nvidia", "all")
    assert "runtimeClassName" not in others
    assert _PARTS not in others["environment"]
    plan = rendered(tmp_path, _RUNTIME)["configuration/worker-h100-configuration/jail.fstab"]
    assert any(line.startswith("cdi cellblock.driver/node=all cdi ") for line in plan.splitlines())


def test_gpus_of_another_kind_have_another_resource(tmp_path: Path) -> None:
    other = pod(tmp_path, "h100", _RUNTIME.replace("    shm: 64Gi\n", "    gpu_resource: amd.com/gpu\n"))
    assert other["containers"][0]["resources"]["limits"]["amd.com/gpu"] == "8"
    assert _PARTS not in other["environment"]
