# SPDX-License-Identifier: Apache-2.0
"""Renders a cluster file as a folder of manifests, which `kubectl apply -k` takes.

kustomization.yaml         names all of it; makes the ConfigMaps whose names follow their content
namespace.yaml, jail.yaml, controller.yaml, ... , nodes-NAME.yaml, network.yaml
configuration/             the files of those ConfigMaps
monitoring/                what is applied where there is Prometheus' operator
.gitignore                 keeps secrets.yaml, which `write_secrets` makes here, out of a repository

The other modules of this folder make the objects.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from cellblock.cluster.definition.kubernetes_part import JailBackup
from cellblock.errors import CellblockError
from cellblock.files import durable
from cellblock.kubernetes import control, health, node_pods, nodes, on_demand
from cellblock.kubernetes.configuration import generated_files, slurm_config_map
from cellblock.kubernetes.description import Description, cluster_facts, configuration
from cellblock.kubernetes.jail import BackupPlan, KubernetesRequest, Toleration
from cellblock.kubernetes.jail import render as render_jail
from cellblock.kubernetes.metadata import COMPONENT, Object, dump, labels, made_from
from cellblock.kubernetes.monitoring import dashboards, monitors
from cellblock.kubernetes.network import policies
from cellblock.kubernetes.quantities import size

SECRETS = "secrets.yaml"
"""Where the secrets are, unless another file is named."""
_HEAD = "# Written by Cellblock from {source}. Changes are overwritten.\n"
# What is of an earlier render is removed from these, and from the folder itself by its name.
_OWN_FOLDERS = ("configuration", "monitoring")
_PARTS = ("accounting.yaml", "database.yaml", "rest.yaml", "metrics.yaml", "health.yaml", "on-demand.yaml")


def render(cluster: Description, templates: Path | None = None) -> dict[str, str]:
    """Path below the output folder -> text. The same cluster makes the same texts.

    Raises UsageError and CellblockError for what cannot be rendered.
    """
    facts = cluster_facts(cluster)
    texts = configuration(cluster, facts, templates)
    generated = generated_files(cluster, texts)
    file = cluster.file
    objects: dict[str, list[Object]] = {
        "namespace.yaml": [_namespace(cluster)],
        "jail.yaml": _jail(cluster),
        "slurm-configuration.yaml": [slurm_config_map(cluster, texts)],
        "controller.yaml": list(control.controller(cluster, facts)),
        "nodes.yaml": list(nodes.nodes_service(cluster)),
        "login.yaml": list(nodes.login(cluster, "login-configuration")),
    }
    if facts.accounting:
        tokens = facts.rest is not None
        objects["accounting.yaml"] = list(
            control.accounting(cluster, facts.accounting, "accounting-configuration", tokens)
        )
        if not facts.accounting.external:
            objects["database.yaml"] = list(control.database(cluster))
    if file.rest:
        objects["rest.yaml"] = list(control.rest(cluster, file.rest.replicas))
    if file.metrics:
        objects["metrics.yaml"] = list(control.metrics(cluster, file.metrics.interval))
    if health.measures(cluster):
        objects["health.yaml"] = list(health.pod(cluster))
    for one in file.node_sets:
        config_map = on_demand.plan_name(one)
        if one.on_demand:
            files = generated.pop(config_map)
            objects[f"nodes-{one.name}.yaml"] = list(on_demand.node_set(cluster, one, files))
        else:
            objects[f"nodes-{one.name}.yaml"] = list(nodes.node_set(cluster, facts, one, config_map))
    if node_pods.sets(cluster):
        objects["on-demand.yaml"] = list(on_demand.objects(cluster, facts))
    objects["network.yaml"] = list(policies(cluster, {"worker", *_components(objects)}))
    head = _HEAD.format(source=cluster.source)
    written = {name: head + dump(made) for name, made in objects.items()}
    for name, files in generated.items():
        written |= {f"configuration/{name}/{path}": text for path, text in files.items()}
    written["kustomization.yaml"] = head + dump([_kustomization(cluster, objects, generated)])
    if file.metrics:
        written["monitoring/monitors.yaml"] = head + dump(monitors(cluster, file.metrics.interval))
        written["monitoring/dashboards.yaml"] = head + dump(dashboards(cluster))
    written[".gitignore"] = f"{SECRETS}\n"
    return written


def _components(objects: Mapping[str, list[Object]]) -> set[str]:
    return {
        one["metadata"]["labels"][COMPONENT]
        for made in objects.values()
        for one in made
        if one["kind"] in ("StatefulSet", "Deployment")
    }


def _namespace(cluster: Description) -> Object:
    """Workers and login nodes make the jail's mounts, which `privileged` alone allows."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": cluster.place.namespace,
            "labels": {
                **labels(cluster, "namespace"),
                "pod-security.kubernetes.io/enforce": "privileged",
                "pod-security.kubernetes.io/audit": "baseline",
            },
            "annotations": made_from(cluster),
        },
    }


def _jail(cluster: Description) -> list[Object]:
    """The claim, and the Job that fills or upgrades it."""
    place = cluster.place
    jail = place.jail
    request = KubernetesRequest(
        image=cluster.image("jail-init"),
        source=f"docker://{cluster.image(cluster.file.jail.image)}",
        kinds=(*(() if jail.existing else ("claim",)), "init", *(("backup",) if jail.backup else ())),
        namespace=place.namespace,
        claim=jail.claim,
        size=size(jail.size),
        storage_class=jail.storage_class or "",
        shards=jail.shards,
        upgrade=True,
        allow_lossy=jail.allow_lossy,
        registry=jail.registry_secret or "",
        pull_secrets=place.pull_secrets,
        plain_http=jail.plain_http,
        ca=jail.registry_ca or "",
        backup=_backup(jail.backup),
        node_selector=tuple(place.node_selector.items()),
        tolerations=tuple(map(Toleration.parse, place.tolerations)),
    )
    made: list[Object] = [yaml.safe_load(text) for text in render_jail(request).values()]
    for one in made:
        one["metadata"]["annotations"] = made_from(cluster)
        if one["kind"] == "PersistentVolumeClaim":
            one["spec"]["accessModes"] = [jail.access_mode]
    return made


def _backup(asked: JailBackup | None) -> BackupPlan | None:
    if asked is None:
        return None
    return BackupPlan(asked.repository, asked.secret, asked.schedule, time_zone=asked.time_zone or "")


def _kustomization(
    cluster: Description, objects: Iterable[str], generated: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": cluster.place.namespace,
        "resources": list(objects),
        "generatorOptions": {
            "labels": labels(cluster, "configuration"),
            "annotations": made_from(cluster),
            # Another text is another name: no kubelet needs to watch them.
            "immutable": True,
        },
        "configMapGenerator": [
            {"name": name, "files": [f"configuration/{name}/{path}" for path in files]}
            for name, files in generated.items()
        ],
    }


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """Make `folder` hold `texts`, and nothing of an earlier render that is not among them.

    Raises CellblockError when it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in _OWN_FOLDERS:
            wanted = {PurePosixPath(path).parts[1] for path in texts if path.startswith(f"{name}/")}
            for found in (folder / name).iterdir() if (folder / name).is_dir() else ():
                if found.name not in wanted:
                    shutil.rmtree(found) if found.is_dir() else found.unlink()
                for file in found.iterdir() if found.is_dir() else ():
                    if f"{name}/{found.name}/{file.name}" not in texts:
                        file.unlink()
        for found in folder.glob("nodes-*.yaml"):
            if found.name not in texts:
                found.unlink()
        for name in _PARTS:
            if name not in texts:
                (folder / name).unlink(missing_ok=True)
        for name, text in texts.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.is_file() or path.read_bytes() != text.encode():
                durable.write(path, text, mode=0o644)
    except OSError as error:
        raise CellblockError(
            f"{error.filename or folder}: cannot be written: {error.strerror}",
            hint="name a folder that can be written with --output",
        ) from error
