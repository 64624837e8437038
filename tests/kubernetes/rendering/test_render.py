# SPDX-License-Identifier: Apache-2.0
"""A cluster file becomes objects that Kubernetes takes, whose pods may do no more than is written down."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cellblock.cluster.definition.model import SlurmVariant
from cellblock.errors import DefinitionError, UsageError
from cellblock.kubernetes.release_1_20 import for_1_20
from cellblock.kubernetes.render import write
from tests.kubernetes.helpers.rendered import FILE, SLURM, described, found, objects, rendered
from tests.kubernetes_schemas import VERSIONS, check

VARIANTS = {
    "everything": (FILE, SLURM),
    "auth/slurm": (FILE.replace("name: pods\n", "name: pods\nauth: slurm\n"), SLURM),
    "slurm's own metrics": (FILE, SlurmVariant("debian14", "26.05", "/usr/lib/slurm")),
    "an old slurm": (FILE, SlurmVariant("debian12", "22.05", "/usr/lib/slurm")),
    "prepared volumes": (
        FILE + "  state: {prepared: true}\n  database: {prepared: true}\n",
        SLURM,
    ),
    "as little as can be": (
        "name: small\n"
        "node_sets: [{name: cpu, resources: {cpu: 1, memory: 1Gi}}]\n"
        "partitions: [{name: main, default: true}]\n"
        "kubernetes: {registry: registry.example/cellblock}\n",
        SLURM,
    ),
}
EXTRA = {"PodMonitor", "PrometheusRule"}
"""Kinds that are no part of Kubernetes."""


def pods(texts: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Name of what makes the pod -> its specification."""
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]
        for one in objects(texts)
        if "template" in one.get("spec", {})
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", list(VARIANTS))
def test_kubernetes_takes_them(version: str, name: str, tmp_path: Path) -> None:
    made = [one for one in objects(rendered(tmp_path, *VARIANTS[name])) if one["kind"] not in EXTRA]
    assert len(made) > 15
    for one in made:
        check(one, version)


@pytest.mark.parametrize("name", list(VARIANTS))
def test_the_same_file_is_rendered_the_same_twice(name: str, tmp_path: Path) -> None:
    first, second = (rendered(tmp_path, *VARIANTS[name]) for _ in range(2))
    assert first == second
    assert list(first) == list(second)
    write(tmp_path / "out", first)
    before = {path: path.stat().st_ino for path in (tmp_path / "out").rglob("*") if path.is_file()}
    write(tmp_path / "out", second)
    assert before == {path: path.stat().st_ino for path in (tmp_path / "out").rglob("*") if path.is_file()}


def test_what_is_no_longer_in_the_file_is_no_longer_in_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "out", rendered(tmp_path))
    (tmp_path / "out" / "own.yaml").write_text("of the site\n")
    small = rendered(tmp_path, *VARIANTS["as little as can be"])
    write(tmp_path / "out", small)
    there = {
        str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()
    }
    assert there == {*small, "own.yaml"}


def test_every_object_says_what_it_was_made_from(tmp_path: Path) -> None:
    texts = rendered(tmp_path)
    said = {"cellblock.org/cluster-file": "cluster.yaml@0123456789ab", "cellblock.org/version": "1.2.3"}
    for one in objects(texts):
        assert one["metadata"]["annotations"] == said, one["metadata"]["name"]
    assert yaml.safe_load(texts["kustomization.yaml"])["generatorOptions"]["annotations"] == said


def test_another_version_starts_no_pod_anew(tmp_path: Path) -> None:
    for one in objects(rendered(tmp_path)):
        assert "annotations" not in str(one.get("spec", {}).get("template", "")), one["metadata"]["name"]


def test_what_the_api_would_add_or_drop_is_not_left_to_it(tmp_path: Path) -> None:
    """`kubectl apply` would find such an object changed each time."""
    for one in objects(rendered(tmp_path)):
        assert "volumeClaimTemplates" not in one.get("spec", {})
        spec = str(one.get("spec", ""))
        assert "[]" not in spec, one["metadata"]["name"]
        for number, unit in re.findall(r"'(\d+)(Mi|Gi)'", spec):
            assert int(number) % 1024, f"{one['metadata']['name']}: {number}{unit} is a larger unit's"
        assert not re.search(r"'cpu': '(\d+000m|\d+\.\d+)'", spec)


def test_every_mount_has_its_volume_and_every_claim_its_object(tmp_path: Path) -> None:
    for name in VARIANTS:
        texts = rendered(tmp_path, *VARIANTS[name])
        claims = {one["metadata"]["name"] for one in objects(texts) if one["kind"] == "PersistentVolumeClaim"}
        used = set()
        for spec in pods(texts).values():
            volumes = {volume["name"] for volume in spec.get("volumes", ())}
            both = (*spec.get("initContainers", ()), *spec["containers"])
            assert {mount["name"] for one in both for mount in one.get("volumeMounts", ())} == volumes
            bound = (volume.get("persistentVolumeClaim") for volume in spec.get("volumes", ()))
            used |= {claim["claimName"] for claim in bound if claim}
        assert used == claims


def test_the_kustomization_has_every_file(tmp_path: Path) -> None:
    texts = rendered(tmp_path)
    made = yaml.safe_load(texts["kustomization.yaml"])
    files = {path for generator in made["configMapGenerator"] for path in generator["files"]}
    own = {"kustomization.yaml", ".gitignore"}
    assert {name for name in texts if not name.startswith("monitoring/")} == {
        *made["resources"],
        *files,
        *own,
    }
    generated = {generator["name"] for generator in made["configMapGenerator"]}
    named = set(re.findall(r"name: ([a-z0-9-]+-configuration)$", "".join(texts.values()), re.MULTILINE))
    assert named == generated | {"slurm-configuration"}


RESTRICTED_VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret", "name"}
BASELINE_CAPABILITIES = {
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
    *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
}


def is_restricted(spec: dict[str, Any]) -> bool:
    """The Pod Security Standard `restricted`, as its page has it."""
    for one in (*spec.get("initContainers", ()), *spec["containers"]):
        context = one["securityContext"]
        if context.get("runAsNonRoot") is not True or context.get("runAsUser") == 0:
            return False
        if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
            return False
        if context["capabilities"]["drop"] != ["ALL"] or set(context["capabilities"].get("add", ())) - {
            "NET_BIND_SERVICE"
        }:
            return False
        if context["seccompProfile"]["type"] not in ("RuntimeDefault", "Localhost"):
            return False
    return all(set(volume) <= RESTRICTED_VOLUMES for volume in spec.get("volumes", ()))


@pytest.mark.parametrize("auth", ["everything", "auth/slurm"])
def test_daemons_pass_the_standard_restricted(auth: str, tmp_path: Path) -> None:
    text, variant = VARIANTS[auth]
    text += "  state: {prepared: true}\n  database: {prepared: true}\n"
    passing = {name for name, spec in pods(rendered(tmp_path, text, variant)).items() if is_restricted(spec)}
    assert passing == {"controller", "accounting", "database", "rest"}


def test_a_volume_that_is_not_prepared_is_given_to_its_user_once_and_that_is_all(tmp_path: Path) -> None:
    for name in ("controller", "accounting"):
        spec = pods(rendered(tmp_path))[name]
        (before,) = spec.pop("initContainers")
        assert before["securityContext"]["capabilities"]["add"] == ["CHOWN", "FOWNER"]
        assert is_restricted(spec)


def test_the_jail_keeps_its_owners(tmp_path: Path) -> None:
    for name, spec in pods(rendered(tmp_path)).items():
        mounts_jail = any(volume["name"] == "jail" for volume in spec["volumes"])
        assert not (mounts_jail and "fsGroup" in spec.get("securityContext", {})), name
        assert name not in ("rest", "database") or not mounts_jail


def test_no_pod_is_privileged_or_has_a_token_or_the_machine(tmp_path: Path) -> None:
    texts = rendered(tmp_path)
    for name, spec in pods(texts).items():
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        assert spec["automountServiceAccountToken"] is False
        assert not any("hostPath" in volume for volume in spec["volumes"])
        for one in (*spec.get("initContainers", ()), *spec["containers"]):
            assert "privileged" not in one["securityContext"]
            assert "memory" in one["resources"]["limits"]
            wide = set(one["securityContext"]["capabilities"].get("add", ())) - BASELINE_CAPABILITIES
            assert not wide or name in ("cpu", "h100", "login"), (name, wide)
            assert wide <= {"SYS_ADMIN", "SYS_NICE"}
    assert all(
        one["automountServiceAccountToken"] is False
        for one in objects(texts)
        if one["kind"] == "ServiceAccount"
    )


def test_probes_ask_nobody(tmp_path: Path) -> None:
    for name, spec in pods(rendered(tmp_path)).items():
        for one in spec["containers"]:
            for kind in ("readinessProbe", "livenessProbe", "startupProbe"):
                command = one.get(kind, {}).get("exec", {}).get("command", ())
                assert not re.search(r"scontrol|sinfo|squeue|sacctmgr|curl", str(command))
        probes = [one.get("livenessProbe", {}) for one in spec["containers"]]
        alive = [probe for probe in probes if 0 < probe.get("failureThreshold", 0) < 1_000_000]
        assert not alive or name == "rest", f"{name}: what it does must not be ended"


def test_secrets_are_in_no_manifest_and_mounted_only_where_they_are_needed(tmp_path: Path) -> None:
    texts = rendered(tmp_path)
    assert not [one for one in objects(texts) if one["kind"] == "Secret"]
    mounted = {
        name: {
            source["secret"]["name"]
            for volume in spec["volumes"]
            for source in volume.get("projected", {}).get("sources", ())
            if "secret" in source
        }
        for name, spec in pods(texts).items()
    }
    jobs = {name for name in mounted if name.startswith("jail-init")}
    assert {name: sorted(what) for name, what in mounted.items() if name not in jobs} == {
        "controller": ["slurm-key", "slurm-tokens"],
        "accounting": ["slurm-database", "slurm-key", "slurm-tokens"],
        "database": ["slurm-database"],
        "rest": [],
        "metrics": ["slurm-key"],
        "health": ["slurm-key"],
        "login": ["login-host-keys", "slurm-key"],
        "cpu": ["slurm-key"],
        "h100": ["slurm-key"],
    }


def test_slurm_is_told_the_names_of_pods(tmp_path: Path) -> None:
    texts = rendered(tmp_path)
    conf = found(texts, "ConfigMap", "slurm-configuration")["data"]
    lines = conf["slurm.conf"].splitlines()
    assert "SlurmctldHost=controller-0" in lines
    assert "AccountingStorageHost=accounting" in lines
    assert "MaxNodeCount=1024" in lines
    assert "SlurmdParameters=config_overrides" in lines
    assert "NodeSet=h100 Feature=h100" in lines
    assert (
        "DbdHost=accounting-0" in texts["configuration/accounting-configuration/slurmdbd.conf"].splitlines()
    )
    assert "NodeName=h100-[0-1023] Name=gpu Type=h100 AutoDetect=nvidia" in conf["gres.conf"].splitlines()
    assert "NodeName=h100-[0-1023] Name=fpga Count=2" in conf["gres.conf"].splitlines()
    older = found(rendered(tmp_path, *VARIANTS["an old slurm"]), "ConfigMap", "slurm-configuration")["data"]
    assert (
        "NodeName=h100-[0-1023] Name=gpu Type=h100 File=/dev/nvidia[0-7]" in older["gres.conf"].splitlines()
    )


def test_a_node_set_is_what_the_file_says(tmp_path: Path) -> None:
    texts = rendered(tmp_path)
    one = found(texts, "StatefulSet", "h100")["spec"]
    assert (one["replicas"], one["ordinals"], one["serviceName"]) == (40, {"start": 1}, "nodes")
    assert one["podManagementPolicy"] == "Parallel"
    spec = one["template"]["spec"]
    (slurmd,) = spec["containers"]
    environment = {each["name"]: each["value"] for each in slurmd["env"]}
    assert environment["CELLBLOCK_NODE_CONF"] == (
        "CPUs=96 RealMemory=1048576 Feature=h100 Gres=gpu:h100:8,fpga:2"
    )
    assert environment["CELLBLOCK_CONTROLLER"] == "controller-0:6817"
    assert slurmd["image"] == "registry.example/own/worker:3"
    assert slurmd["resources"]["limits"] == {"memory": "1049088Mi", "nvidia.com/gpu": "8"}
    assert slurmd["resources"]["requests"]["cpu"] == "96"
    assert spec["nodeSelector"] == {"pool": "gpu"}
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "pool", "operator": "Equal", "value": "gpu"},
    ]
    assert "requiredDuringSchedulingIgnoredDuringExecution" in spec["affinity"]["podAntiAffinity"]
    assert spec["terminationGracePeriodSeconds"] == 2 * 3600 + 75
    assert slurmd["lifecycle"]["preStop"]["exec"]["command"] == ["/usr/lib/cellblock/node-leave", "7200"]
    assert spec["dnsConfig"] == {"searches": ["nodes.hpc.svc.cluster.local"]}
    assert "size=65536m" in texts["configuration/worker-h100-configuration/jail.fstab"]
    assert found(texts, "PodDisruptionBudget", "h100")["spec"]["maxUnavailable"] == "10%"
    assert found(texts, "StatefulSet", "controller")["spec"]["template"]["spec"]["nodeSelector"] == {
        "pool": "system"
    }


def test_every_flow_that_there_is_is_allowed(tmp_path: Path) -> None:
    texts = rendered(tmp_path)

    def allowed(to: str, source: str, port: int) -> bool:
        rules = found(texts, "NetworkPolicy", to)["spec"]["ingress"]
        return any(
            _from(rule, source) and any(_has(each, port) for each in rule.get("ports", [{}]))
            for rule in rules
        )

    flows = {
        ("controller", source, 6817)
        for source in ("worker", "login", "rest", "metrics", "accounting", "health")
    } | {
        *(("worker", source, 618) for source in ("controller", "login", "worker")),
        *(("worker", "worker", port) for port in (22, 40000)),
        *(("login", source, 40000) for source in ("controller", "worker")),
        *(("worker", "health", port) for port in (618, 40000)),
        *(("health", source, 40000) for source in ("controller", "worker")),
        *(("accounting", source, 6819) for source in ("controller", "worker", "login", "rest")),
        ("database", "accounting", 3306),
        ("worker", "login", 22),
        ("login", "anybody", 22),
        ("rest", "anybody", 6820),
        ("metrics", "anybody", 9341),
    }
    assert {flow for flow in flows if not allowed(*flow)} == set()
    refused = [
        *(("database", source, 3306) for source in ("worker", "login", "rest", "anybody")),
        *(("accounting", source, 6819) for source in ("anybody", "database")),
        *(("controller", source, 6817) for source in ("anybody", "database")),
        *(("worker", source, 618) for source in ("anybody", "rest", "database")),
        ("controller", "worker", 22),
        *(("health", source, 40000) for source in ("anybody", "login", "rest")),
        ("health", "worker", 22),
    ]
    assert [flow for flow in refused if allowed(*flow)] == []
    (closed,) = [one for one in objects(texts) if one["metadata"]["name"] == "nothing-else"]
    assert closed["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}


def _from(rule: dict[str, Any], source: str) -> bool:
    peers = rule.get("from")
    if not peers:
        return True
    component = "app.kubernetes.io/component"
    labels = [each.get("podSelector", {}).get("matchLabels", {}).get(component, "any") for each in peers]
    return source in labels or "any" in labels


def _has(port: dict[str, Any], number: int) -> bool:
    first = port.get("port", number)
    return bool(first <= number <= port.get("endPort", first))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("storage_class: shared", "storage_class: Fast Disks", "jail.storage_class: 'Fast Disks' is no name"),
        ("namespace: hpc", f"namespace: {'x' * 64}", "kubernetes.namespace: 'x+' is no DNS label"),
        ("namespace: hpc", "namespace: hpc.prod", "kubernetes.namespace: 'hpc.prod' is no DNS label"),
        ("name: cpu", "name: Cpu_1", "node_sets.0.name: 'Cpu_1' is no name here"),
        ("name: cpu", f"name: {'c' * 31}", "node_sets.0.name: .* at most 30"),
        ("name: cpu", "name: metrics", "node_sets.0.name: .* a meaning of its own"),
        ("shards: 4", "access_mode: ReadWriteOnce", "one machine alone can mount the jail, and .* 42 nodes"),
        ("registry: registry.example/cellblock", "registry: https://x", "kubernetes.registry: .*HOST/PATH"),
        ("own/worker:3", "own/worker: 3", "kubernetes.images.worker: .* is no image in a registry"),
        ("pool=gpu", "pool=gpu:Never", "node_sets.1.tolerations.1: .* is no toleration"),
        ("grace: 2h", "grace: forever", "node_sets.1.grace: 'forever' is no time"),
        ("spread: required", "spread: wide", "node_sets.1.spread: "),
        ("{cpu: 4, memory: 8Gi}", "{cpu: 4}", "set 'cpu' needs `resources: {cpu: N, memory: SIZE}`"),
        ("type: LoadBalancer", "node_port: 30022", "kubernetes.login.node_port: goes with"),
        ("ssh-ed25519 AAAA", "ssh-rsa\\nAAAA", "kubernetes.login.authorized_keys.0: is no public key"),
        ("priority_class: high", "priority_clas: high", "did you mean 'priority_class'"),
        ("size: 2Ti", "size: lots", "kubernetes.jail.size: 'lots' is no size"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(old: str, new: str, said: str, tmp_path: Path) -> None:
    line = FILE.count("\n", 0, FILE.index(old)) + 1
    with pytest.raises(DefinitionError, match=rf"cluster.yaml:{line}: .*{said}") as failed:
        described(tmp_path, FILE.replace(old, new))
    assert failed.value.hint


def test_a_set_without_an_image_is_refused_with_its_line(tmp_path: Path) -> None:
    text = FILE.replace("  registry: registry.example/cellblock\n", "").replace(
        "count: 2", "count: 2\n    image: own"
    )
    line = text.count("\n", 0, text.index("image: own")) + 1
    with pytest.raises(DefinitionError, match=rf":{line}: node_sets.0.image: set 'cpu' runs the image 'own'"):
        described(tmp_path, text)


def test_what_no_line_says_is_refused_too(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no part `kubernetes`"):
        described(tmp_path, FILE[: FILE.index("kubernetes:")])
    with pytest.raises(UsageError, match=r"Slurm 21\.08, whose nodes cannot register"):
        described(tmp_path, FILE, SlurmVariant("ubuntu22.04", "21.08", "/x"))
    only = FILE.replace("  registry: registry.example/cellblock\n", "")
    with pytest.raises(UsageError, match=r"says where the image '.*' is"):
        rendered(tmp_path, only)


def test_what_kubernetes_1_20_does_not_know_is_taken_out_for_it(tmp_path: Path) -> None:
    texts = rendered(tmp_path)
    old = [for_1_20(one) for one in objects(texts)]
    known = str(old)
    for word in ("appArmorProfile", "ordinals", "podFailurePolicy", "endPort", "unprivileged_port_start"):
        assert word in str(list(objects(texts)))
        assert word not in known
    assert {one["apiVersion"] for one in old if one["kind"] == "PodDisruptionBudget"} == {"policy/v1beta1"}
