# SPDX-License-Identifier: Apache-2.0
"""The rendered manifests are what Kubernetes accepts, and their pods may do no more than is written down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cellblock.errors import UsageError
from cellblock.kubernetes.jail import (
    KINDS,
    BackupPlan,
    KubernetesRequest,
    RestorePlan,
    Toleration,
    parse_selector,
    render,
)
from cellblock.paths import PROJECT
from tests.kubernetes_schemas import VERSIONS, check

BACKUP = BackupPlan("s3:https://s3.example/jails", "jail-backup")
REQUEST = KubernetesRequest(
    image="registry.example/cellblock/jail-init:debian13@sha256:12",
    source="docker://registry.example/cellblock/jail:debian13@sha256:34",
    kinds=KINDS,
    registry="pull",
    storage_class="shared",
    backup=BACKUP,
)
REQUESTS = {
    "all": REQUEST,
    "shards": replace(REQUEST, shards=8, upgrade=True, drained=True),
    "everything": replace(
        REQUEST,
        pull_secrets=("pull", "mirror.example"),
        plain_http=True,
        ca="registry-ca",
        node_selector=(("pool", "true"), ("topology.kubernetes.io/zone", "1")),
        tolerations=tuple(map(Toleration.parse, ("gpu=true:NoSchedule", "spot:NoExecute", "old"))),
        backup=replace(BACKUP, time_zone="Europe/Zurich"),
        restore=RestorePlan("12345678", "/home/ada", replace=True),
    ),
    "plain": replace(REQUEST, kinds=("claim", "init"), registry="", storage_class="", backup=None),
}

BASELINE = {
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
    *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
}
"""What the Pod Security Standard `baseline` lets a container add."""


def objects(request: KubernetesRequest) -> dict[str, dict[str, Any]]:
    return {name: yaml.safe_load(text) for name, text in render(request).items()}


def pod(manifest: dict[str, Any]) -> dict[str, Any]:
    spec = manifest["spec"]
    if manifest["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    found: dict[str, Any] = spec["template"]["spec"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", list(REQUESTS))
def test_kubernetes_accepts_them(version: str, name: str) -> None:
    for manifest in objects(REQUESTS[name]).values():
        check(manifest, version)


def test_a_wrong_manifest_would_be_found() -> None:
    manifest = objects(REQUEST)["jail-init.yaml"]
    pod(manifest)["containers"][0]["securityContext"]["capabilites"] = {}
    with pytest.raises(AssertionError, match="capabilites"):
        check(manifest)


@pytest.mark.parametrize("kind", ["init", "backup", "restore"])
@pytest.mark.parametrize("upgrade", [True, False])
def test_pods_may_do_no_more_than_they_need(kind: str, upgrade: bool) -> None:
    spec = pod(objects(replace(REQUEST, upgrade=upgrade))[f"jail-{kind}.yaml"])
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "fsGroup" not in spec["securityContext"], "it would change the owners of the whole volume"
    (container,) = spec["containers"]
    context = container["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"]["drop"] == ["ALL"]
    added = set(context["capabilities"]["add"])
    assert added <= BASELINE
    table = (PROJECT / "docs/jail-kubernetes.md").read_text()
    assert all(f"| {name} |" in table for name in added), "each has its reason in the docs"
    assert ("SYS_CHROOT" in added) == (kind == "init" and upgrade)
    assert kind != "backup" or added == {"DAC_OVERRIDE"}
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])
    assert "memory" in container["resources"]["limits"]
    secrets = {volume["name"] for volume in spec["volumes"] if "secret" in volume}
    assert secrets == ({"registry"} if kind == "init" else {"backup"})


def test_what_a_kind_does_not_need_is_not_asked_for() -> None:
    assert set(objects(KubernetesRequest(kinds=("namespace", "claim")))) == {
        "jail-namespace.yaml",
        "jail-claim.yaml",
    }
    assert objects(replace(REQUEST, source="", kinds=("backup", "restore")))
    with pytest.raises(UsageError, match=r"--image, the image jail-init .* is not given"):
        render(replace(REQUEST, image="", kinds=("backup",)))
    with pytest.raises(UsageError, match=r"--jail, the jail's image .* is not given"):
        render(replace(REQUEST, source=""))


def test_pods_run_where_and_as_they_are_told_to() -> None:
    request = REQUESTS["everything"]
    for kind in ("init", "backup", "restore"):
        spec = pod(objects(request)[f"jail-{kind}.yaml"])
        assert spec["imagePullSecrets"] == [{"name": "pull"}, {"name": "mirror.example"}]
        assert spec["nodeSelector"] == {"pool": "true", "topology.kubernetes.io/zone": "1"}
        assert spec["tolerations"] == [
            {"key": "gpu", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
            {"key": "spot", "operator": "Exists", "effect": "NoExecute"},
            {"key": "old", "operator": "Exists"},
        ]
    (container,) = pod(objects(request)["jail-init.yaml"])["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    mounted = {each["mountPath"] for each in container["volumeMounts"]}
    assert environment["CELLBLOCK_REGISTRY_PLAIN_HTTP"] == "1"
    assert str(Path(str(environment["CELLBLOCK_REGISTRY_CA"])).parent) in mounted
    assert objects(request)["jail-backup.yaml"]["spec"]["timeZone"] == "Europe/Zurich"
    restore = objects(request)["jail-restore.yaml"]
    arguments = pod(restore)["containers"][0]["args"]
    assert arguments[:6] == ["restore", "/mnt/jail", "--snapshot", "12345678", "--path", "/home/ada"]
    assert "--replace" in arguments
    assert restore["metadata"]["name"] != objects(REQUEST)["jail-restore.yaml"]["metadata"]["name"]


@pytest.mark.parametrize("text", ["", "=x", "a=b=c", "a:Never", "a b", "-a", "a=b:"])
def test_a_toleration_that_kubernetes_would_refuse_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--toleration"):
        Toleration.parse(text)
    with pytest.raises(UsageError, match="--node-selector"):
        parse_selector(text.replace("a=b=c", "a").replace("a:Never", "a:b=c"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"restore": RestorePlan("new")}, "--snapshot 'new'"),
        ({"restore": RestorePlan(path="home/ada")}, "--path 'home/ada'"),
        ({"pull_secrets": ("A_b",)}, "--pull-secret 'A_b'"),
        ({"ca": "a/b"}, "--registry-ca 'a/b'"),
        ({"backup": replace(BACKUP, time_zone="here or there")}, "--time-zone"),
        ({"backup": replace(BACKUP, time_zone="Europ/Zurich")}, "there is no such time zone"),
    ],
)
def test_a_wrong_option_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        render(replace(REQUEST, **change))


def test_a_job_gives_up_and_wrong_usage_is_not_tried_again() -> None:
    spec = objects(REQUEST)["jail-init.yaml"]["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (6, 14_400)
    rule = spec["podFailurePolicy"]["rules"][0]
    assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [UsageError.exit_status])


def test_shards_are_an_indexed_job_and_another_image_is_another_job() -> None:
    one, eight = objects(REQUEST)["jail-init.yaml"], objects(REQUESTS["shards"])["jail-init.yaml"]
    assert "completionMode" not in one["spec"]
    assert (eight["spec"]["completionMode"], eight["spec"]["completions"]) == ("Indexed", 8)
    arguments = pod(eight)["containers"][0]["args"]
    assert arguments[arguments.index("--shards") + 1] == "8"
    other = objects(replace(REQUEST, source="docker://registry.example/jail:2"))["jail-init.yaml"]
    assert other["metadata"]["name"] != one["metadata"]["name"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"claim": "The Jail"}, "--claim"),
        ({"source": "jail"}, "no pod can read the image"),
        ({"source": "localhost/cellblock/jail"}, "no pod can read the image"),
        ({"size": "lots"}, "--size"),
        ({"kinds": ("clame",)}, "there is no kind of manifest 'clame'; did you mean 'claim'?"),
        ({"backup": None}, "a backup needs a place"),
        ({"backup": BackupPlan("s3:x", "s", "daily")}, "five fields"),
        ({"backup": BackupPlan("s3:x", "s", "60 3 * * *")}, "'60' is no minute"),
        ({"backup": BackupPlan("s3:x", "s", "0 3 * * mon-7")}, "'mon-7' is no day of week"),
        ({"backup": BackupPlan("s3:x", "s", "0 */0 * * *")}, "is no hour"),
        ({"backup": BackupPlan("s3:x", "A b")}, "--backup-secret"),
        ({"registry": "x: {"}, "--registry-secret"),
        ({"storage_class": "Fast Disks"}, "--storage-class"),
        ({"image": ""}, "--image"),
        ({"image": "jail-init"}, "--image"),
        ({"source": "oci:/srv/jail"}, "no pod can read the image"),
        ({"source": "docker://host"}, "no pod can read the image"),
        ({"size": "0Gi"}, "--size"),
        ({"size": "500"}, "--size 500 is 500 bytes"),
        ({"size": "5000000000"}, "--size 5000000000 is 5000000000 bytes"),
        ({"drained": True}, "--drained goes with --upgrade"),
    ],
)
def test_what_kubernetes_would_refuse_is_refused(change: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        render(replace(REQUEST, **change))


@pytest.mark.parametrize("schedule", ["*/5 0-6,20 1,15 JAN-mar sun", "17 3 * * *", "0 0/2 31 12 0-6/2"])
def test_schedules_that_kubernetes_knows_are_rendered(schedule: str) -> None:
    manifests = objects(replace(REQUEST, backup=BackupPlan("s3:x", "s", schedule)))
    assert manifests["jail-backup.yaml"]["spec"]["schedule"] == schedule


def test_a_claim_on_nfs_can_be_filled() -> None:
    lossy = objects(replace(REQUEST, allow_lossy=True))
    for kind in ("init", "restore"):
        assert "--allow-lossy" in pod(lossy[f"jail-{kind}.yaml"])["containers"][0]["args"]
        assert "--allow-lossy" not in pod(objects(REQUEST)[f"jail-{kind}.yaml"])["containers"][0]["args"]


def test_no_value_can_become_more_than_a_value() -> None:
    odd = replace(REQUEST, source='docker://r/x"],evil:"', backup=BackupPlan('s3:"x": {\n- y', "s"))
    for manifest in objects(odd).values():
        check(manifest)
    assert pod(objects(odd)["jail-init.yaml"])["containers"][0]["args"][1] == odd.source
