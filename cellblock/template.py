# SPDX-License-Identifier: Apache-2.0
"""Renders Jinja2 templates from the values of a variant; a name that does not exist is an error.

Definitions of images are such templates (build/rendering.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from cellblock.errors import DefinitionError
from cellblock.variants import Variant


def variant_context(variant: Variant) -> dict[str, Any]:
    """What templates of images see: variant, distribution, slurm, arch and cuda."""
    return {
        "variant": variant,
        "distribution": variant.distribution,
        "slurm": variant.slurm,
        "arch": variant.arch,
        "cuda": variant.cuda,
    }


class Renderer:
    """Renders strings and files of one variant."""

    def __init__(self, variant: Variant) -> None:
        self._context = variant_context(variant)
        # Output is configuration and shell, never HTML; files end with their newline.
        self._environment = jinja2.Environment(
            undefined=jinja2.StrictUndefined, keep_trailing_newline=True, trim_blocks=True
        )

    def text(self, template: str, where: str) -> str:
        """`template` rendered; `where` names its place in the error. Raises DefinitionError."""
        if "{" not in template:
            return template
        try:
            return self._environment.from_string(template).render(self._context)
        except jinja2.TemplateError as error:
            line = f"line {error.lineno}: " if isinstance(error, jinja2.TemplateSyntaxError) else ""
            raise DefinitionError(
                f"{where}: {line}{_named(str(error), self._context)}",
                hint=f"templates know: {', '.join(self._context)} (docs/definitions.md)",
            ) from error

    def file(self, path: Path) -> str:
        """The file at `path` rendered. Raises DefinitionError."""
        return self.text(path.read_text(encoding="utf-8"), str(path))


def _named(message: str, context: Mapping[str, Any]) -> str:
    """Jinja's `message` with the name that a template has for an object in the place of its class."""
    for name, value in context.items():
        kind = f"{type(value).__module__}.{type(value).__qualname__} object"
        message = message.replace(f"'{kind}'", f"'{name}'")
    # Of Undefined.__getattr__: None is what a variant without CUDA has for `cuda`.
    return message.replace(
        "'None' has no attribute", "'cuda' is nothing in this variant and has no attribute"
    )
