# SPDX-License-Identifier: Apache-2.0
"""Draws the flowcharts of pages as SVG, so that the site needs no script for them.

Pages hold them as Mermaid, which GitHub and GitLab draw themselves. This module knows the part of Mermaid
that the pages use: `flowchart LR` or `TB`, and lines `a["text"] -->|text| b["text"]`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape

from cellblock.errors import CellblockError

_NODE = r'(\w+)(?:\["([^"]+)"\])?'
_EDGE = re.compile(rf"^\s*{_NODE}\s*-->\s*(?:\|([^|]+)\|\s*)?{_NODE}\s*$")
_ALONE = re.compile(rf"^\s*{_NODE}\s*$")
_LETTER, _LINE, _PAD, _GAP = 7.4, 18.0, 14.0, 26.0
_STEP_GAP = {True: 58.0, False: 36.0}  # across, and down
_LABEL_LETTER = 6.4
_READABLE = 520


class DiagramError(CellblockError):
    """A flowchart of a page is written in a way that cannot be drawn."""


@dataclass
class _Chart:
    across: bool
    texts: dict[str, str] = field(default_factory=dict)
    edges: list[tuple[str, str, str]] = field(default_factory=list)


def svg(text: str, title: str) -> str:
    """An `svg` element of the flowchart `text`; `title` is what a screen reader says of it."""
    chart = _read(text)
    ranks = _ranks(chart)
    sizes = {name: _size(label) for name, label in chart.texts.items()}
    places, width, height = _place(chart, ranks, sizes)
    # Labels may reach beyond the boxes.
    middles = [(places[start][0] + places[end][0]) / 2 for start, end, _ in chart.edges]
    reach = [len(label) * _LABEL_LETTER + 16 for _, _, label in chart.edges]
    left = min([0.0, *(at - far for at, far in zip(middles, reach, strict=True))])
    width = max([width, *(at + far for at, far in zip(middles, reach, strict=True))]) - left
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="cb-chart" role="img" aria-label="{escape(title)}" '
        f'viewBox="{left:.0f} 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
        # On a narrow screen it is scrolled rather than made too small to read.
        f' style="min-width: {min(width, _READABLE):.0f}px">',
        '<defs><marker id="cb-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path d="M0 0 8 4 0 8z"/></marker></defs>',
        *(_line(chart.across, places, sizes, *edge) for edge in chart.edges),
        *(_box(places[name], sizes[name], label) for name, label in chart.texts.items()),
        "</svg>",
    ]
    return "".join(parts)


def _read(text: str) -> _Chart:
    head, *lines = [line for line in text.splitlines() if line.strip()]
    found = re.fullmatch(r"\s*flowchart (LR|TB)\s*", head)
    if not found:
        raise DiagramError(f"a flowchart begins with `{head}`", hint="begin it with flowchart LR, or TB")
    chart = _Chart(across=found[1] == "LR")
    for line in lines:
        edge, alone = _EDGE.match(line), _ALONE.match(line)
        if not edge and not alone:
            raise DiagramError(
                f"a flowchart has the line `{line}`", hint='write a["text"] -->|text| b["text"]'
            )
        nodes = [(edge[1], edge[2]), (edge[4], edge[5])] if edge else [(alone[1], alone[2])] if alone else []
        for name, label in nodes:
            if label or name not in chart.texts:
                chart.texts[name] = label or name
        if edge:
            chart.edges.append((edge[1], edge[4], edge[3] or ""))
    return chart


def _ranks(chart: _Chart) -> dict[str, int]:
    """How many steps lie before each node, by the longest way to it."""
    ranks = dict.fromkeys(chart.texts, 0)
    for _ in ranks:
        for start, end, _label in chart.edges:
            ranks[end] = max(ranks[end], min(ranks[start] + 1, len(ranks)))
    if any(rank >= len(ranks) for rank in ranks.values()):
        raise DiagramError("a flowchart goes in a circle", hint="leave out the way back")
    return ranks


def _size(label: str) -> tuple[float, float]:
    lines = label.split("<br>")
    return max(map(len, lines)) * _LETTER + 2 * _PAD, len(lines) * _LINE + _PAD


def _place(
    chart: _Chart, ranks: dict[str, int], sizes: dict[str, tuple[float, float]]
) -> tuple[dict[str, tuple[float, float]], float, float]:
    """The middle of each box, and the size of the whole."""
    along, beside = (0, 1) if chart.across else (1, 0)
    rows = [[name for name in ranks if ranks[name] == rank] for rank in range(max(ranks.values()) + 1)]
    widths = [sum(sizes[name][beside] for name in row) + _GAP * (len(row) - 1) for row in rows]
    labels = [label for _, _, label in chart.edges]
    gap = max(
        _STEP_GAP[chart.across], max(map(len, labels), default=0) * _LABEL_LETTER + 24 if chart.across else 0
    )
    places: dict[str, tuple[float, float]] = {}
    at = 4.0
    for row, width in zip(rows, widths, strict=True):
        deep = max(sizes[name][along] for name in row)
        side = 4 + (max(widths) - width) / 2
        for name in row:
            middle = (at + deep / 2, side + sizes[name][beside] / 2)
            places[name] = middle if chart.across else (middle[1], middle[0])
            side += sizes[name][beside] + _GAP
        at += deep + gap
    length, breadth = at - gap + 4, max(widths) + 8
    return places, *((length, breadth) if chart.across else (breadth, length))


def _line(
    across: bool,
    places: dict[str, tuple[float, float]],
    sizes: dict[str, tuple[float, float]],
    start: str,
    end: str,
    label: str,
) -> str:
    (x0, y0), (x1, y1) = places[start], places[end]
    if across:
        x0, x1 = x0 + sizes[start][0] / 2, x1 - sizes[end][0] / 2 - 2
        path = (
            f"M{x0:.0f} {y0:.0f}C{(x0 + x1) / 2:.0f} {y0:.0f} {(x0 + x1) / 2:.0f} {y1:.0f} {x1:.0f} {y1:.0f}"
        )
        at = ((x0 + x1) / 2, (y0 + y1) / 2 - 5)
    else:
        y0, y1 = y0 + sizes[start][1] / 2, y1 - sizes[end][1] / 2 - 2
        path = (
            f"M{x0:.0f} {y0:.0f}C{x0:.0f} {(y0 + y1) / 2:.0f} {x1:.0f} {(y0 + y1) / 2:.0f} {x1:.0f} {y1:.0f}"
        )
        # Beside the line, on the side that it leans to, so that those of two branches lie apart.
        beside = (len(label) * _LABEL_LETTER / 2 + 8) * (1 if x1 >= x0 else -1)
        at = ((x0 + x1) / 2 + beside, (y0 + y1) / 2 + 4)
    text = f'<text class="on" x="{at[0]:.0f}" y="{at[1]:.0f}">{escape(label)}</text>' if label else ""
    return f'<path marker-end="url(#cb-tip)" d="{path}"/>{text}'


def _box(middle: tuple[float, float], size: tuple[float, float], label: str) -> str:
    (x, y), (width, height) = middle, size
    lines = label.split("<br>")
    first = y - (len(lines) - 1) * _LINE / 2 + 5
    texts = "".join(
        f'<text class="{"name" if number == 0 else "more"}" x="{x:.0f}" y="{first + number * _LINE:.0f}">'
        f"{escape(line)}</text>"
        for number, line in enumerate(lines)
    )
    left, top = x - width / 2, y - height / 2
    return f'<rect x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{height:.0f}" rx="6"/>{texts}'
