# SPDX-License-Identifier: Apache-2.0
"""Places the nodes of a small directed acyclic graph in rows, as Sugiyama, Tagawa and Toda do (1981).

graph_svg.py draws the result. A node's row follows from the longest way to it from a root. The order within
rows is that with the fewest crossings among those tried. It is made for tens of nodes; graphviz would be
better, but is not installed everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 12
"""Up and down over the rows; the graphs of images settle after three."""

Edge = tuple[str, str]


@dataclass(frozen=True)
class Placed:
    """Centres of nodes, and for each edge the points it goes through, ends not included."""

    centres: Mapping[str, tuple[float, float]]
    bends: Mapping[Edge, Sequence[tuple[float, float]]]
    width: float
    height: float


def place(widths: Mapping[str, float], edges: Sequence[Edge], row_height: float, gap: float) -> Placed:
    """Place nodes of these `widths`, which stand after what points at them; edges point down."""
    rank: dict[str, int] = dict.fromkeys(widths, 0)
    for name in widths:
        for start, end in edges:
            if end == name:
                rank[name] = max(rank[name], rank[start] + 1)
    rows: list[list[str]] = [[] for _ in range(max(rank.values(), default=0) + 1)]
    size = dict(widths)
    for name, row in rank.items():
        rows[row].append(name)
    chains: dict[Edge, list[str]] = {}
    for start, end in edges:
        between = [f"{start}\0{end}\0{row}" for row in range(rank[start] + 1, rank[end])]
        for row, name in enumerate(between, rank[start] + 1):
            rows[row].append(name)
            size[name] = 10.0  # room for a line
        chains[(start, end)] = [start, *between, end]
    links = [pair for chain in chains.values() for pair in pairwise(chain)]
    rows = _ordered(rows, links)
    x = _columns(rows, links, size, gap)
    y = {name: (number + 0.5) * row_height for number, row in enumerate(rows) for name in row}
    at = {name: (x[name], y[name]) for name in x}
    return Placed(
        {name: at[name] for name in widths},
        {edge: [at[name] for name in chain[1:-1]] for edge, chain in chains.items()},
        max((x[name] + size[name] / 2 for name in x), default=0.0),
        row_height * len(rows),
    )


def _ordered(rows: list[list[str]], links: Sequence[Edge]) -> list[list[str]]:
    best, fewest = [list(row) for row in rows], _crossings(rows, links)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for number in range(1, len(rows)) if down else range(len(rows) - 2, -1, -1):
            fixed = {name: place for place, name in enumerate(rows[number - 1 if down else number + 1])}

            def middle(name: str, fixed: Mapping[str, int] = fixed, number: int = number) -> float:
                places = [fixed[a if b == name else b] for a, b in links if _joins(a, b, name, fixed)]
                return sum(places) / len(places) if places else rows[number].index(name)

            wanted = {name: middle(name) for name in rows[number]}
            rows[number] = sorted(rows[number], key=wanted.__getitem__)
        crossings = _crossings(rows, links)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    return best


def _joins(start: str, end: str, name: str, others: Mapping[str, int]) -> bool:
    return (start == name and end in others) or (end == name and start in others)


def _crossings(rows: Sequence[Sequence[str]], links: Sequence[Edge]) -> int:
    place = {name: (number, index) for number, row in enumerate(rows) for index, name in enumerate(row)}
    spans = [(*place[start], place[end][1]) for start, end in links]
    return sum(
        1
        for index, (row, top, bottom) in enumerate(spans)
        for other_row, other_top, other_bottom in spans[index + 1 :]
        if row == other_row and (top - other_top) * (bottom - other_bottom) < 0
    )


def _columns(
    rows: Sequence[Sequence[str]], links: Sequence[Edge], size: Mapping[str, float], gap: float
) -> dict[str, float]:
    """Centres along a row: drawn to the neighbours' mean, kept apart, from the left to the right."""
    x: dict[str, float] = {}
    for row in rows:
        left = 0.0
        for name in row:
            x[name] = left + size[name] / 2
            left += size[name] + gap
    around: dict[str, list[str]] = {name: [] for name in x}
    for start, end in links:
        around[start].append(end)
        around[end].append(start)
    for sweep in range(4 * _SWEEPS):
        for row in rows if sweep % 2 else reversed(rows):
            wanted = [_mean([x[each] for each in around[name]], x[name]) for name in row]
            for name, centre in zip(row, _apart(wanted, [size[name] for name in row], gap), strict=True):
                x[name] = centre
    least = min((x[name] - size[name] / 2 for name in x), default=0.0)
    return {name: centre - least for name, centre in x.items()}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _apart(wanted: Sequence[float], sizes: Sequence[float], gap: float) -> list[float]:
    """Places in the same order that are near those `wanted` (least squares) and do not overlap.

    Neighbours that would overlap become one block at the mean of what its members want.
    """
    blocks: list[tuple[float, list[int]]] = []  # the place of the first member; members
    offsets = [0.0] * len(wanted)
    for index in range(1, len(wanted)):
        offsets[index] = offsets[index - 1] + (sizes[index - 1] + sizes[index]) / 2 + gap
    for index, centre in enumerate(wanted):
        start, members = centre - offsets[index], [index]
        while blocks and blocks[-1][0] > start:
            _, before = blocks.pop()
            members = before + members
            start = _mean([wanted[each] - offsets[each] for each in members], 0.0)
        blocks.append((start, members))
    return [start + offsets[index] for start, members in blocks for index in members]
