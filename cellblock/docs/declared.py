# SPDX-License-Identifier: Apache-2.0
"""Makes the reference pages of image.yaml, variants.yaml and the cluster file, from their models."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from cellblock import definition, variants
from cellblock.cluster.definition import (
    cluster_file,
    external_database,
    health_part,
    kubernetes_part,
    node_set,
)
from cellblock.docs.table import code, table
from cellblock.paths import PROJECT

_ROW = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \| (.*) \|$", re.MULTILINE)
# What readers of the page call a model, and where the links to it lead.
_TITLES: dict[type[BaseModel], str] = {
    definition.User: "A user",
    definition.Artifacts: "Artifacts",
    definition.Compile: "A compiled image",
    variants.Distribution: "A distribution",
    variants.CudaPackages: "Packages of CUDA",
    variants.VariantFields: "A variant",
    variants.SlurmSource: "Slurm from source",
    variants.CudaFields: "The CUDA of a variant",
    cluster_file.Jail: "The jail",
    cluster_file.Accounting: "Accounting",
    external_database.ExternalDatabase: "A database of the site",
    external_database.DatabaseTls: "TLS to the database",
    cluster_file.Purge: "Old records",
    cluster_file.Controller: "Controllers",
    cluster_file.Rest: "The REST API",
    cluster_file.Metrics: "Metrics",
    cluster_file.Login: "The login node",
    node_set.Resources: "Resources",
    node_set.NodeSet: "A node set",
    node_set.OnDemand: "Nodes on demand",
    cluster_file.Partition: "A partition",
    health_part.Health: "Health of nodes",
    health_part.HealthCheck: "A health check",
    health_part.HealthBudget: "Budget for drains",
    health_part.HealthActive: "Jobs that measure nodes",
    cluster_file.SlurmLines: "Extra lines",
    kubernetes_part.Kubernetes: "Kubernetes",
    kubernetes_part.JailVolume: "Volume of the jail",
    kubernetes_part.JailBackup: "Backups of the jail",
    kubernetes_part.Volume: "A volume",
    kubernetes_part.LoginService: "Login on Kubernetes",
    kubernetes_part.SecretNames: "Existing Secrets",
    kubernetes_part.Requests: "Requests",
}
_NAMES = {str: "text", int: "number", bool: "true or false", float: "number", type(None): "nothing"}


def definitions_page() -> str:
    """The page `reference/definitions.md`."""
    parts = [
        "# Keys of image.yaml and variants.yaml",
        "*Reference. Made from the models that read the files; an unknown key is an error.*",
        "What the keys do, with examples: [Images and variants](../definitions.md).",
        "## image.yaml",
        *_model(definition.ImageFields, set(), meanings_of_keys()),
        "## variants.yaml",
        *_model(variants.VariantsFile, set()),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def cluster_page() -> str:
    """The page `reference/cluster-file.md`."""
    parts = [
        "# Keys of the cluster file",
        "*Reference. Made from the models that read the file; an unknown key is an error.*",
        "What the keys do, with examples: [The cluster file](../cluster-file.md). "
        "`python3 build.py render schema cluster` prints a JSON schema, for editors.",
        *_model(cluster_file.ClusterFile, set()),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def meanings_of_keys() -> dict[str, str]:
    """Key of image.yaml -> what docs/definitions.md says of it, in its table."""
    text = (PROJECT / "docs" / "definitions.md").read_text()
    return {key: meaning for keys, meaning in _ROW.findall(text) for key in re.findall(r"`(\w+)`", keys)}


def _model(
    model: type[BaseModel], known: set[type], meanings: Mapping[str, str] | None = None
) -> Iterator[str]:
    """The section of a model, and of those that its keys hold."""
    if model in known:
        return
    # The first one has the heading of its file.
    if known:
        yield f"### {_TITLES[model]}"
        yield inspect.cleandoc(model.__doc__ or "")
    known.add(model)
    rows = []
    for name, one in model.model_fields.items():
        key = one.alias or name
        meaning = (meanings or {}).get(key) or one.description or ""
        rows.append((code(key), _type(one.annotation), _default(one), meaning))
    yield table(("key", "value", "default", "meaning"), rows)
    for one in model.model_fields.values():
        for each in _held(one.annotation):
            yield from _model(each, known)


def _held(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for each in typing.get_args(annotation):
        yield from _held(each)


def _type(annotation: Any) -> str:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(inner[0])
    if origin is typing.Literal:
        return ", ".join(code(one) for one in inner)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(one) for one in inner if one is not type(None))
    if origin in (list, tuple, set, frozenset):
        return f"list of: {_type(inner[0])}"
    if origin is dict or (inspect.isclass(origin) and issubclass(origin, typing.Mapping)):
        return f"mapping: {_type(inner[0])} to {_type(inner[1])}"
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return f"[{_TITLES[annotation]}](#{_TITLES[annotation].lower().replace(' ', '-')})"
    return _NAMES.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _default(field: Any) -> str:
    if field.is_required():
        return "needed"
    value = field.default
    if value is PydanticUndefined or value is None or value in ([], {}, ()):
        return "none"
    if isinstance(value, BaseModel):
        return "none"
    if isinstance(value, tuple) and isinstance(value[0], BaseModel):
        dumped = [one.model_dump(exclude_defaults=True) for one in value]
        return code(yaml.safe_dump(dumped, default_flow_style=True, sort_keys=False).strip())
    if isinstance(value, tuple):
        return ", ".join(code(one) for one in value)
    return code(str(value).lower() if isinstance(value, bool) else value)
