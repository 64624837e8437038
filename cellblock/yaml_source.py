# SPDX-License-Identifier: Apache-2.0
"""Reads YAML and remembers the line of every key, so that an error can name file, line and key.

It also validates the data against a pydantic model.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from cellblock.errors import DefinitionError

Location = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class YamlSource:
    """One YAML document: its plain data, and the 1-based line of every key and list item."""

    path: Path
    data: Any
    lines: dict[Location, int]

    def line(self, location: Location) -> int:
        """Line of `location`, or of the nearest enclosing key that the document has."""
        while location:
            if location in self.lines:
                return self.lines[location]
            location = location[:-1]
        return 1


class FaultAt(ValueError):
    """A fault that a model's validator finds, at `location` below the model's own."""

    def __init__(self, message: str, *location: str | int) -> None:
        super().__init__(message)
        self.location: Location = location


def nearest(word: str, known: Iterable[str]) -> str:
    """A sentence that suggests the most similar of `known`, or lists them when none is."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(names)}"


def read_yaml(path: Path) -> YamlSource:
    """Parse `path`.

    Raises DefinitionError, naming the line, when the file cannot be read, is no YAML, or gives
    a key twice (YAML 1.2, section 3.2.1.1, forbids that; PyYAML would keep the last silently).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DefinitionError(
            f"{path}: cannot be read: {reason}", hint="check the path, or restore the file"
        ) from error
    lines: dict[Location, int] = {}
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            data = None if node is None else _construct(loader, node, (), lines, path)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = error.problem or "not YAML"
        raise DefinitionError(f"{where}: {problem}", hint=f"correct the YAML in {path}") from error
    except yaml.YAMLError as error:
        raise DefinitionError(f"{path}: {error}", hint=f"correct the YAML in {path}") from error
    return YamlSource(path, data, lines)


def _construct(loader: Any, node: yaml.Node, at: Location, lines: dict[Location, int], path: Path) -> Any:
    lines.setdefault(at, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str | int, Any] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if not isinstance(key, str | int):
                raise DefinitionError(
                    f"{path}:{line}: a key must be a plain word, not {key!r}",
                    hint="quote values that begin with '{' or '[', such as Jinja's '{{ ... }}'",
                )
            inner: Location = (*at, key)
            if key in mapping:
                raise DefinitionError(
                    f"{path}:{line}: key '{key}' stands twice (first on line {lines[inner]})",
                    hint="keep one of the two",
                )
            lines[inner] = line
            mapping[key] = _construct(loader, value_node, inner, lines, path)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_construct(loader, item, (*at, index), lines, path) for index, item in enumerate(node.value)]
    return loader.construct_object(node, deep=True)


# What pydantic calls its faults, for people who write YAML and no Python.
_SAID = {
    "missing": "missing",
    "model_type": "must be a mapping (KEY: VALUE)",
    "dict_type": "must be a mapping (KEY: VALUE)",
    "list_type": "must be a list ([A, B], or a line `- A` each)",
    "tuple_type": "must be a list ([A, B], or a line `- A` each)",
    "string_type": "must be text; quote it where YAML reads something else",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
}


def validate(source: YamlSource, model: type[Model]) -> Model:
    """The data of `source` as a `model`.

    Raises DefinitionError listing each fault with file, line and key, and the near miss of an
    unknown key.
    """
    try:
        return model.model_validate(source.data)
    except ValidationError as error:
        faults = []
        for fault in error.errors():
            cause = fault.get("ctx", {}).get("error")
            inner = cause.location if isinstance(cause, FaultAt) else ()
            location: Location = (*fault["loc"], *inner)
            key = ".".join(str(part) for part in location) or "(document)"
            text = fault["msg"].removeprefix("Value error, ")
            if fault["type"] == "extra_forbidden":
                text = f"unknown key; {nearest(str(location[-1]), _keys_beside(model, fault['loc']))}"
            elif fault["type"] == "too_short":
                text = f"needs at least {fault['ctx']['min_length']} item"
            text = _SAID.get(fault["type"], text)
            faults.append(f"{source.path}:{source.line(location)}: {key}: {text}")
        raise DefinitionError("\n".join(faults), hint=f"correct {source.path}") from error


def _keys_beside(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """Keys that the model holding the last part of `location` accepts."""
    current: type[BaseModel] = model
    for part in location[:-1]:
        if isinstance(part, str):
            inner = _model_of(current, part)
            current = inner or current
    return [field.alias or name for name, field in current.model_fields.items()]


def _model_of(model: type[BaseModel], key: str) -> type[BaseModel] | None:
    for name, field in model.model_fields.items():
        if key in (name, field.alias):
            pending: list[Any] = [field.annotation]
            while pending:
                annotation = pending.pop()
                if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                    return annotation
                pending.extend(getattr(annotation, "__args__", ()))
    return None
