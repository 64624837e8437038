# SPDX-License-Identifier: Apache-2.0
"""How pods of a cluster file are named, placed and updated, their devices; ConfigMaps that never change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cellblock import paths
from cellblock.build.rendering import render_images
from cellblock.definition import load_images
from cellblock.errors import UsageError
from cellblock.graph import build_order
from cellblock.kubernetes.release_1_20 import for_1_20
from cellblock.variants import load_variants
from tests.kubernetes.helpers.rendered import FILE, found, objects, rendered
from tests.kubernetes_schemas import check


@pytest.mark.parametrize("name", ["cpu", "h100", "login"])
def test_nodes_and_login_nodes_have_names_that_slurm_and_jobs_find(name: str, tmp_path: Path) -> None:
    texts = rendered(tmp_path)
    one = found(texts, "StatefulSet", name)["spec"]
    naming = found(texts, "Service", one["serviceName"])["spec"]
    assert naming["clusterIP"] == "None"
    assert naming["publishNotReadyAddresses"] is True
    assert naming["selector"].items() <= one["template"]["metadata"]["labels"].items()
    domain = f"{one['serviceName']}.hpc.svc.cluster.local"
    for asks in ("controller", "cpu", "h100", "login"):
        spec = found(texts, "StatefulSet", asks)["spec"]["template"]["spec"]
        assert domain in spec["dnsConfig"]["searches"], asks


def test_no_command_reads_a_configuration_that_nobody_has_tried(tmp_path: Path) -> None:
    mounted = {
        (one["metadata"]["name"], mount["mountPath"])
        for one in objects(rendered(tmp_path))
        if one["kind"] in ("StatefulSet", "Deployment")
        for spec in [one["spec"]["template"]["spec"]]
        for container in spec["containers"]
        for mount in container["volumeMounts"]
        for volume in spec["volumes"]
        if volume["name"] == mount["name"]
        and volume.get("configMap", {}).get("name") == "slurm-configuration"
    }
    # slurmrestd reads it once, when it starts.
    tried = {(name, "/etc/cellblock/slurm") for name in ("controller", "health", "login", "metrics")}
    assert mounted == {*tried, ("rest", "/etc/slurm")}


def test_each_pod_has_what_says_to_slurm_who_asks(tmp_path: Path) -> None:
    """with auth/slurm sackd, where no daemon of Slurm's says so itself"""
    folder = paths.PROJECT / "images"
    images = load_images(folder)
    made = render_images(load_variants(folder / "variants.yaml")["debian13"], build_order(images, images))
    roles = {}
    for one in objects(rendered(tmp_path, FILE.replace("name: pods\n", "name: pods\nauth: slurm\n"))):
        if one["kind"] in ("StatefulSet", "Deployment"):
            for container in one["spec"]["template"]["spec"]["containers"]:
                image = container["image"].rpartition("/")[2].partition(":")[0]
                command = container.get("command") or images[image].fields.entrypoint
                if "cellblock-init" in command or image == "metrics":
                    roles[command[-1]] = "sackd" in made[image].packages
    # Daemons that say so themselves.
    del roles["controller"], roles["accounting"]
    assert roles == dict.fromkeys(("login", "health", "worker", "cellblock-metrics"), True)


def test_nodes_are_spread_over_machines_as_their_set_says(tmp_path: Path) -> None:
    def placed(text: str, name: str) -> tuple[bool, list[dict[str, object]]]:
        spec = found(rendered(tmp_path, text), "StatefulSet", name)["spec"]["template"]["spec"]
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        apart = spec.get("affinity", {}).get("podAntiAffinity", {})
        assert set(apart) <= {required}
        return bool(apart), spec.get("topologySpreadConstraints", [])

    assert placed(FILE, "h100") == (True, [])
    apart, (constraint,) = placed(FILE, "cpu")
    assert not apart
    assert constraint["topologyKey"] == "kubernetes.io/hostname"
    assert constraint["whenUnsatisfiable"] == "ScheduleAnyway"
    assert constraint["labelSelector"] == {
        "matchLabels": {
            "app.kubernetes.io/name": "cellblock",
            "app.kubernetes.io/instance": "pods",
            "app.kubernetes.io/component": "worker",
            "cellblock.org/node-set": "cpu",
        }
    }
    assert placed(FILE.replace("spread: required", "spread: none"), "h100") == (False, [])


def test_a_device_plugin_gives_nodes_fuse(tmp_path: Path) -> None:
    text = FILE.replace("shm: 64Gi", "shm: 64Gi\n    fuse_resource: smarter-devices/fuse")
    one = found(rendered(tmp_path, text), "StatefulSet", "h100")
    check(one)
    (slurmd,) = one["spec"]["template"]["spec"]["containers"]
    for kind in ("requests", "limits"):
        assert slurmd["resources"][kind]["smarter-devices/fuse"] == "1"
        assert slurmd["resources"][kind]["nvidia.com/gpu"] == "8"


def test_each_slurmctld_has_an_address_that_its_next_pod_has_too(tmp_path: Path) -> None:
    text = FILE.replace("name: pods\n", "name: pods\ncontroller: {replicas: 2}\n")
    texts = rendered(tmp_path, text)
    for host in ("controller-0", "controller-1"):
        one = found(texts, "Service", host)
        check(one)
        assert one["spec"]["type"] == "ClusterIP"
        assert one["spec"]["selector"]["statefulset.kubernetes.io/pod-name"] == host
    (slurmd,) = found(texts, "StatefulSet", "cpu")["spec"]["template"]["spec"]["containers"]
    told = {each["name"]: each["value"] for each in slurmd["env"]}
    assert told["CELLBLOCK_CONTROLLER"] == "controller-0:6817,controller-1:6817"


def test_a_wrong_image_of_any_part_is_replaced_without_anybodys_help(tmp_path: Path) -> None:
    """A StatefulSet whose pods wait for each other waits for one with a wrong image until it is deleted."""
    sets = [one["spec"] for one in objects(rendered(tmp_path)) if one["kind"] == "StatefulSet"]
    assert len(sets) > 4
    assert {one["podManagementPolicy"] for one in sets} == {"Parallel"}


def test_a_refused_configuration_is_an_alert_of_its_namespace(tmp_path: Path) -> None:
    groups = found(rendered(tmp_path), "PrometheusRule", "slurm")["spec"]["groups"]
    (rule,) = groups[-1]["rules"]
    assert 'prober_probe_total{namespace="hpc",container="slurmctld"' in rule["expr"]
    assert {group["name"] for group in groups} > {"cellblock.jail", "cellblock.kubernetes"}


def test_a_config_map_that_gets_another_name_with_another_text_is_immutable(tmp_path: Path) -> None:
    texts = rendered(tmp_path)
    kustomization = yaml.safe_load(texts["kustomization.yaml"])
    assert kustomization["generatorOptions"]["immutable"] is True
    assert "immutable" not in found(texts, "ConfigMap", "slurm-configuration")
    assert "immutable" not in for_1_20(kustomization)["generatorOptions"]


def mounted(spec: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    """Path -> volume, and whether it is read-only, of a pod's first container."""
    mounts = spec["containers"][0]["volumeMounts"]
    return {one["mountPath"]: (one["name"], one.get("readOnly", False)) for one in mounts}


def test_nodes_have_what_their_checks_read(tmp_path: Path) -> None:
    """those on demand, too; and without `health` nothing of it"""
    texts = rendered(tmp_path)
    for name in ("cpu", "h100"):
        assert (
            "check disk off" in texts[f"configuration/worker-{name}-configuration/health.conf"].splitlines()
        )
        spec = found(texts, "StatefulSet", name)["spec"]["template"]["spec"]
        assert mounted(spec)["/etc/cellblock/health.conf"] == ("plan", True)
    on_demand = rendered(tmp_path, FILE.replace("count: 40", "count: 40\n    on_demand: {}"))
    assert (
        "check disk off" in found(on_demand, "ConfigMap", "worker-h100-configuration")["data"]["health.conf"]
    )
    without = rendered(tmp_path, FILE.replace("health:", "# "))
    spec = found(without, "StatefulSet", "cpu")["spec"]["template"]["spec"]
    assert "/etc/cellblock/health.conf" not in mounted(spec)
    assert not [name for name in without if "health" in name]


def test_jobs_that_measure_nodes_come_from_a_pod_of_root(tmp_path: Path) -> None:
    """whom alone Slurm takes them from; it has the volume where the exporter asks for what they found"""
    texts = rendered(tmp_path)
    made = found(texts, "Deployment", "health")["spec"]
    assert made["replicas"] == 1
    spec = made["template"]["spec"]
    (container,) = spec["containers"]
    assert container["image"].endswith("/controller:debian13")
    assert container["command"][-2:] == ["cellblock-init", "health"]
    assert "runAsUser" not in container["securityContext"]
    assert spec["dnsConfig"] == {"searches": ["nodes.hpc.svc.cluster.local"]}
    assert mounted(spec)["/etc/cellblock/slurm"] == ("configuration", True)
    assert mounted(spec)["/mnt/jail"] == ("jail", False)
    conf = found(texts, "ConfigMap", "slurm-configuration")["data"]
    assert "PartitionName=cellblock_health" in conf["slurm.conf"]
    assert "check pair-speed every=86400" in conf["health-active.conf"].splitlines()
    alone = rendered(tmp_path, FILE.replace("metrics: {interval: 15}\n", ""))
    assert "/mnt/jail" not in mounted(found(alone, "Deployment", "health")["spec"]["template"]["spec"])
    none = rendered(tmp_path, FILE.replace("{leave_out: [disk]}", "{active: null}"))
    assert "health.yaml" not in none


def test_the_jail_is_backed_up_when_the_file_says_so(tmp_path: Path) -> None:
    cron = found(rendered(tmp_path), "CronJob", "jail-backup")["spec"]
    assert cron["schedule"] == "17 3 * * *"
    (container,) = cron["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "RESTIC_REPOSITORY", "value": "s3:https://s3.example/jails"} in container["env"]
    with pytest.raises(UsageError, match="has not five fields"):
        rendered(tmp_path, FILE.replace('jails"}', 'jails", schedule: daily}'))
