# SPDX-License-Identifier: Apache-2.0
"""Prints what `diff`, `why`, `plan` and `verify` found: in colour on a terminal, as plain lines elsewhere."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cellblock.inspect.compare import Difference
from cellblock.inspect.diff import FileChange, ImageDiff, Sign, ValueChange
from cellblock.inspect.entry_diff import describe
from cellblock.inspect.planned_layers import VariantPlan
from cellblock.inspect.why import InputChange
from cellblock.text.amount import amount_of_bytes

_MARKS: dict[Sign, tuple[str, str]] = {
    "added": ("+", "green"),
    "removed": ("-", "red"),
    "changed": ("~", "yellow"),
}
_WORDS: dict[Sign, str] = {"added": "added", "removed": "removed", "changed": "changed"}

_WIDE = 160
"""Columns of a table where there is no terminal: lines of a log may be long."""

_NARROW = 110
"""Columns with less than which the layers' names do not fit beside their sizes and images."""


class InspectView:
    """Prints to `console` (default: stdout)."""

    def __init__(self, console: Console | None = None) -> None:
        terminal = sys.stdout.isatty()
        self._console = console or Console(highlight=False, markup=False, width=None if terminal else _WIDE)

    def line(self, text: str = "", style: str = "") -> None:
        """One line, as long as it is; names from an image cannot move the cursor."""
        self._console.print(Text(_printable(text), style=style), soft_wrap=True)

    # -- diff ----------------------------------------------------------------------------------

    def diff(self, diff: ImageDiff, *, all_files: bool = False) -> None:
        """What differs; files of packages that came, went or changed version are counted only."""
        self.line(f"{diff.old} -> {diff.new}", "bold")
        if diff.old_digest == diff.new_digest:
            self.line("  the same image")
            return
        if diff.is_equal:
            self.line("  the same files and settings, in layers of other bytes (times, order or compression)")
        self._values("Packages", diff.packages, {**_WORDS, "changed": "upgraded or downgraded"})
        self._files(diff, all_files)
        if diff.privileged:
            self.line("  Privileges (setuid, setgid, capabilities)", "bold")
            for change in diff.privileged:
                before, after = (text or "none" for text in change.privileges)
                self._marked(change.sign, f"/{change.path}  {before} -> {after}", "bold")
        self._values("Configuration", diff.settings, _WORDS)
        layers = diff.layers
        self.line("  Layers", "bold")
        self.line(f"    shared    {_layers(layers.shared, layers.shared_layers)}")
        self.line(f"    only old  {_layers(layers.old, layers.old_layers)}")
        self.line(f"    only new  {_layers(layers.new, layers.new_layers)}: what an upgrade pulls")

    def _values(self, title: str, changes: Sequence[ValueChange], words: Mapping[Sign, str]) -> None:
        if not changes:
            return
        self.line(f"  {title}: {_counts([change.sign for change in changes], words)}", "bold")
        for change in changes:
            values = " -> ".join(value for value in (change.old, change.new) if value is not None)
            self._marked(change.sign, f"{change.name} {values}")

    def _files(self, diff: ImageDiff, all_files: bool) -> None:
        if not diff.files:
            return
        self.line(f"  Files: {_counts([change.sign for change in diff.files], _WORDS)}", "bold")
        moved = {change.name.partition(":")[0] for change in diff.packages}
        ordered = sorted(
            diff.files, key=lambda change: (change.package in moved, change.package, change.path)
        )
        for package, group in groupby(ordered, key=lambda change: change.package):
            files = list(group)
            if package in moved and not all_files:
                self.line(f"    of {package}: {_counts([change.sign for change in files], _WORDS)}")
                continue
            self.line(f"    of {package}" if package else "    of no package")
            for change in files:
                self._marked(change.sign, f"  /{change.path}  {_what(change)}")
        if not all_files and any(change.package in moved for change in ordered):
            self.line("    (--files names those of packages that changed too)", "dim")

    def _marked(self, sign: Sign, text: str, style: str = "") -> None:
        mark, color = _MARKS[sign]
        self.line(f"    {mark} {text}", f"{style} {color}".strip())

    # -- verify --------------------------------------------------------------------------------

    def differences(self, found: Sequence[Difference]) -> None:
        """What `compare_images` found, by layer."""
        for layer, group in groupby(found, key=lambda difference: difference.layer):
            self.line(f"  layer {layer}" if layer else "  image", "bold")
            for difference in group:
                where = f"/{difference.path}: " if difference.path else ""
                self.line(f"    {where}{'; '.join(difference.what)}", "yellow")
                for line in difference.lines:
                    self.line(f"      {line}", {"+": "green", "-": "red"}.get(line[:1], "dim"))

    # -- why -----------------------------------------------------------------------------------

    def why(self, image: str, changes: Sequence[InputChange]) -> None:
        """Which inputs changed since `image` was built; the causes of an image below are indented."""
        if not changes:
            self.line(f"{image}: nothing changed since it was built")
            return
        self.line(f"{image} is built again because", "bold")
        self._causes(changes, "  ")

    def _causes(self, changes: Iterable[InputChange], indent: str) -> None:
        for change in changes:
            self.line(f"{indent}{change.text}{' because' if change.because else ''}")
            self._causes(change.because, indent + "  ")

    # -- plan ----------------------------------------------------------------------------------

    def plan(self, plan: VariantPlan) -> None:
        """Layers with sizes and the images that hold them, then each image, then a node."""
        layers = plan.layers()
        table = Table(box=None, pad_edge=False, header_style="bold")
        narrow = self._console.width < _NARROW
        for title in ("Layer", "Packages", "To pull", "Unpacked", "Held by"):
            right = title in ("Packages", "To pull", "Unpacked")
            # Where room lacks, names are broken and numbers keep their units.
            wraps = title == "Held by" or (narrow and title == "Layer")
            justify: Literal["left", "right"] = "right" if right else "left"
            table.add_column(title, justify=justify, no_wrap=not wraps, overflow="fold")
        for layer, images in sorted(layers.values(), key=lambda each: -len(each[1])):
            mark = "" if layer.is_built else "~" if narrow else "about "
            numbers = (
                str(layer.packages or ""),
                _predicted(layer.size, mark),
                _predicted(layer.uncompressed, mark),
            )
            table.add_row(Text(layer.title), *numbers, Text(", ".join(images)))
        self._console.print(table)
        self.line()
        self._images(plan)
        if all(image in plan.images for image in plan.node):
            size, uncompressed = plan.pull(*plan.node)
            apart = sum(plan.pull(image)[0] for image in plan.node)
            self.line()
            self.line(
                f"A node pulls {amount_of_bytes(size)} for {' + '.join(plan.node)} "
                f"({amount_of_bytes(uncompressed)} unpacked); sharing saves {amount_of_bytes(apart - size)}.",
                "bold",
            )
        if any(layer.size is None for layer, _ in layers.values()):
            self.line("Layers of unknown size (what is compiled, files) are not in these sums.", "dim")

    def _images(self, plan: VariantPlan) -> None:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("Image", no_wrap=True)
        for title in ("Layers", "To pull", "Unpacked"):
            table.add_column(title, justify="right", no_wrap=True)
        for image, layers in plan.images.items():
            size, uncompressed = plan.pull(image)
            table.add_row(image, str(len(layers)), amount_of_bytes(size), amount_of_bytes(uncompressed))
        self._console.print(table)


def _predicted(size: int | None, mark: str) -> str:
    return "?" if size is None else mark + amount_of_bytes(size)


def _layers(size: int, number: int) -> str:
    return f"{amount_of_bytes(size)} in {number} layer{'s' * (number != 1)}"


def _counts(signs: Sequence[Sign], words: Mapping[Sign, str]) -> str:
    return ", ".join(f"{signs.count(sign)} {word}" for sign, word in words.items() if sign in signs)


def _what(change: FileChange) -> str:
    if change.what:
        return "; ".join(change.what)
    entry = change.new or change.old
    return describe(entry) if entry else ""


def _printable(text: str) -> str:
    """Without what could move a cursor or change colours, and with the bytes of odd names escaped."""
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", lambda match: f"\\x{ord(match[0]):02x}", text)
