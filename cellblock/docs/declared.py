# SPDX-License-Identifier: Apache-2.0
"""The reference of declared files: keys of image.yaml and variants.yaml, from the models that read them."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from cellblock import definition, variants
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
    if isinstance(value, tuple):
        return ", ".join(code(one) for one in value)
    return code(str(value).lower() if isinstance(value, bool) else value)
