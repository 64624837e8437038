# SPDX-License-Identifier: Apache-2.0
"""Says why an image would be built again: which inputs of its key changed (`build.py why`).

Names and values of inputs are those of build records: `package NAME` is "VERSION SHA-256", a path of the
project is "file DIGEST" or "executable DIGEST", `image NAME` is that image's key, anything else a digest
or a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

ChangeKind = Literal["added", "removed", "changed"]

Inputs = Mapping[str, str]

_NEEDS = {"added": "is needed now", "removed": "is no longer needed", "changed": "changed"}
_DIGEST = re.compile(r"(?:sha256:)?[0-9a-f]{12,64}")


@dataclass(frozen=True)
class InputChange:
    """An input that differs: its name, how, and in words. `because` are the changes of the image it names."""

    name: str
    kind: ChangeKind
    text: str
    because: tuple[InputChange, ...] = field(default=())


def why_changed(
    record_inputs: Inputs,
    new_inputs: Inputs,
    image_inputs: Callable[[str], tuple[Inputs, Inputs] | None] = lambda image: None,
) -> tuple[InputChange, ...]:
    """What changed between the inputs of a build and those of now, the most telling first.

    `image_inputs` gives recorded and new inputs of an image that is an input itself (None: not known), so
    that the cause is named and not the chain to it.
    """
    found = []
    for name in sorted({*record_inputs, *new_inputs}):
        old, new = record_inputs.get(name), new_inputs.get(name)
        if old == new:
            continue
        kind: ChangeKind = "added" if old is None else "removed" if new is None else "changed"
        because: tuple[InputChange, ...] = ()
        if name.startswith("image ") and kind == "changed":
            pair = image_inputs(name.removeprefix("image "))
            because = why_changed(*pair, image_inputs) if pair else ()
        found.append(InputChange(name, kind, _text(name, old, new, kind), because))
    return tuple(sorted(found, key=lambda change: (_rank(change.name), change.name)))


def _rank(name: str) -> int:
    """What a person did comes before what follows from it."""
    if "/" in name:
        return 0
    if name.startswith("package "):
        return 1
    return 3 if name.startswith("image ") else 2


def _text(name: str, old: str | None, new: str | None, kind: ChangeKind) -> str:
    if name.startswith("package "):
        return _package_text(name, old, new)
    if name.startswith("image "):
        return f"{name} {_NEEDS[kind]}"
    modes = [value.partition(" ") for value in (old, new) if value]
    if modes and all(mode in ("file", "executable", "link") for mode, _, _ in modes):
        return _file_text(name, [(mode, digest) for mode, _, digest in modes], kind)
    if kind == "changed" and old and new and not (_DIGEST.fullmatch(old) or _DIGEST.fullmatch(new)):
        return f"{name} {old} -> {new}"
    return f"{name} {kind}"


def _package_text(name: str, old: str | None, new: str | None) -> str:
    before, after = (value.partition(" ")[0] if value else "" for value in (old, new))
    if old is None:
        return f"{name} {after} added"
    if new is None:
        return f"{name} {before} removed"
    if before == after:
        return f"{name} {after}: another deb of the same version"
    return f"{name} {before} -> {after}"


def _file_text(name: str, values: list[tuple[str, str]], kind: ChangeKind) -> str:
    if kind != "changed":
        return f"{values[0][0]} {name} {kind}"
    (old_mode, old_digest), (new_mode, new_digest) = values
    if old_mode == new_mode:
        return f"{new_mode} {name} changed"
    content = "" if old_digest == new_digest else ", and its content changed"
    return f"{name} was a {old_mode}, is a {new_mode} now{content}".replace("a executable", "an executable")
