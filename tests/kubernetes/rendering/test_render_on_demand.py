# SPDX-License-Identifier: Apache-2.0
"""What a node set on demand is rendered as: a template instead of pods, and one container with a token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cellblock_node_pods.template import START_WITHIN, make_pod, read_templates

from cellblock.cluster.definition.model import SlurmVariant
from cellblock.kubernetes import on_demand
from cellblock.kubernetes.release_1_20 import for_1_20
from tests.kubernetes.helpers.rendered import FILE, SLURM, found, objects, rendered
from tests.kubernetes_schemas import VERSIONS, check

_ON_DEMAND = FILE.replace("    count: 40\n", "    count: 40\n    on_demand: {start_within: 20m, min: 1}\n")


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, str]:
    return rendered(tmp_path, _ON_DEMAND)


def the_pod(texts: dict[str, str], folder: Path) -> dict[str, Any]:
    """The pod that the program makes of h100-3, by its own functions."""
    for name, text in found(texts, "ConfigMap", "node-pods")["data"].items():
        (folder / name).write_text(text)
    return make_pod(read_templates(folder)["h100"], "h100-3", "nodes")


def test_there_are_no_pods_of_it(texts: dict[str, str]) -> None:
    made = {(one["kind"], one["metadata"]["name"]) for one in objects(texts)}
    assert ("StatefulSet", "h100") not in made
    assert ("PodDisruptionBudget", "h100") not in made
    assert ("StatefulSet", "cpu") in made
    assert {"nodes-h100.yaml", "on-demand.yaml"} <= set(
        yaml.safe_load(texts["kustomization.yaml"])["resources"]
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_objects_and_pods(texts: dict[str, str], version: str, tmp_path: Path) -> None:
    for name in ("on-demand.yaml", "nodes-h100.yaml", "controller.yaml", "network.yaml"):
        for one in yaml.safe_load_all(texts[name]):
            check(one, version)
    check(the_pod(texts, tmp_path), version)


def test_the_pod_is_that_of_a_set_that_is_always_there(texts: dict[str, str], tmp_path: Path) -> None:
    pod = the_pod(texts, tmp_path)
    always = found(rendered(tmp_path), "StatefulSet", "h100")["spec"]["template"]
    ours = {key: pod["spec"].pop(key) for key in ("hostname", "subdomain", "restartPolicy")}
    assert ours == {"hostname": "h100-3", "subdomain": "nodes", "restartPolicy": "Always"}
    (mine,), (theirs,) = (
        [one.pop("env") for one in spec["containers"]] for spec in (pod["spec"], always["spec"])
    )
    assert pod["spec"] == always["spec"]
    assert [one["name"] for one in mine if one not in theirs] == ["CELLBLOCK_ON_DEMAND"]
    assert [one["name"] for one in theirs if one not in mine] == ["CELLBLOCK_NODE_CONF"]
    labels = pod["metadata"]["labels"]
    assert always["metadata"]["labels"].items() <= labels.items(), "the Service of the nodes' names finds it"
    assert pod["metadata"]["annotations"][START_WITHIN] == "1200"
    assert on_demand.START_WITHIN == START_WITHIN


def test_the_plan_is_where_the_template_says(texts: dict[str, str], tmp_path: Path) -> None:
    """Kustomize does not look into a template: no name that it makes is in there."""
    pod = the_pod(texts, tmp_path)
    wanted = {one["configMap"]["name"] for one in pod["spec"]["volumes"] if "configMap" in one}
    assert wanted == {"worker-h100-configuration"}
    assert found(texts, "ConfigMap", "worker-h100-configuration")["data"]["jail.fstab"]
    generated = yaml.safe_load(texts["kustomization.yaml"])["configMapGenerator"]
    assert not wanted & {one["name"] for one in generated}


def test_one_container_has_a_token_and_not_the_clusters_key(texts: dict[str, str]) -> None:
    spec = found(texts, "StatefulSet", "controller")["spec"]["template"]["spec"]
    mounts = {one["name"]: {each["name"] for each in one["volumeMounts"]} for one in spec["containers"]}
    assert mounts["node-pods"] == {"requests", "templates", "token"}
    assert "requests" in mounts["slurmctld"]
    assert [name for name, there in mounts.items() if "token" in there] == ["node-pods"]
    assert spec["automountServiceAccountToken"] is False
    (container,) = [one for one in spec["containers"] if one["name"] == "node-pods"]
    context = container["securityContext"]
    assert context["runAsUser"] == spec["containers"][0]["securityContext"]["runAsUser"]
    assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
    assert context["capabilities"] == {"drop": ["ALL"]}
    (role,) = [one for one in objects(texts) if one["kind"] == "Role"]
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete", "get", "list"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    ]
    assert not [one for one in objects(texts) if one["kind"].startswith("ClusterRole")]


def test_without_such_a_set_nobody_may_do_anything(tmp_path: Path) -> None:
    texts = rendered(tmp_path)
    assert not [one for one in objects(texts) if one["kind"].startswith("Role")]
    assert "on-demand.yaml" not in texts
    assert "node-pods" not in texts["controller.yaml"]


def test_controllers_alone_reach_the_api(texts: dict[str, str]) -> None:
    policies = [one for one in objects(texts) if one["kind"] == "NetworkPolicy"]
    reach = [
        one["metadata"]["name"]
        for one in policies
        if {"ports": [{"port": 443, "protocol": "TCP"}, {"port": 6443, "protocol": "TCP"}]}
        in one["spec"].get("egress", ())
    ]
    assert reach == ["controller"]


def test_gpus_are_those_of_the_nodes_that_slurm_knows(texts: dict[str, str]) -> None:
    files = found(texts, "ConfigMap", "slurm-configuration")["data"]
    assert "NodeName=h100-[1-40] CPUs=96" in files["slurm.conf"]
    assert "SuspendExcNodes=h100-[1-1]" in files["slurm.conf"]
    assert "NodeName=h100-[1-40]" in files["gres.conf"]


@pytest.mark.parametrize("slurm", [SLURM, SlurmVariant("debian12", "22.05", "/usr/lib/slurm")])
def test_the_kubernetes_of_the_tests_takes_the_pods(slurm: SlurmVariant, tmp_path: Path) -> None:
    config_map = for_1_20(found(rendered(tmp_path, _ON_DEMAND, slurm), "ConfigMap", "node-pods"))
    template = json.loads(config_map["data"]["h100.json"])
    assert "appArmorProfile" not in json.dumps(template)
    assert "sysctls" not in template["spec"].get("securityContext", {})


def test_all_sets_may_be_on_demand(tmp_path: Path) -> None:
    text = _ON_DEMAND.replace("    features: [cheap]\n", "    features: [cheap]\n    on_demand: {}\n")
    texts = rendered(tmp_path, text)
    policies = {one["metadata"]["name"] for one in objects(texts) if one["kind"] == "NetworkPolicy"}
    assert "worker" in policies
