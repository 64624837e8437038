# SPDX-License-Identifier: Apache-2.0
"""Orders images by what they need of each other, and refuses unknown names and cycles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cellblock.definition import Image
from cellblock.errors import DefinitionError, UsageError
from cellblock.yaml_source import nearest


def check_known(names: Iterable[str], images: Mapping[str, Image]) -> None:
    """Raises UsageError for a name that no image has."""
    for name in names:
        if name not in images:
            raise unknown_image(name, images)


def unknown_image(name: str, images: Mapping[str, Image]) -> UsageError:
    """The error for a name that no image has; a folder that has no image.yaml is named as such."""
    for parent in sorted({image.folder.parent for image in images.values()}):
        if (parent / name).is_dir() and name not in ("", ".", ".."):
            return UsageError(
                f"{parent / name}: there is no image.yaml in this folder", hint="see docs/definitions.md"
            )
    return UsageError(f"there is no image '{name}'; {nearest(name, images)}", hint="see `build.py targets`")


def build_order(images: Mapping[str, Image], wanted: Iterable[str]) -> list[Image]:
    """`wanted` and all they need, each after what it needs.

    Raises UsageError for an unknown name and DefinitionError for a cycle, naming its members.
    """
    order: dict[str, Image] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            cycle = (*path[path.index(name) :], name)
            image = images[cycle[-2]]
            at = image.needs()[name]
            # Of one tree, where the names say which files; of a site's folder and this tree, the files.
            others = [each for each in cycle[:-2] if images[each].folder.parent != image.folder.parent]
            where = f" ({', '.join(str(images[each].source.path) for each in others)})" if others else ""
            raise DefinitionError(
                f"{image.source.path}:{image.source.line(at)}: images need each other in a circle: "
                f"{' -> '.join(cycle)}{where}",
                hint="remove one of these needs",
            )
        if name not in order:
            for need in images[name].needs():
                visit(need, (*path, name))
            order[name] = images[name]

    names = list(wanted)
    check_known(names, images)
    for name in names:
        visit(name, ())
    return list(order.values())
