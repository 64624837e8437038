# SPDX-License-Identifier: Apache-2.0
"""Draws the graph of images as an SVG picture that needs no other file, in light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

from cellblock.inspect.graph_layout import Placed, place
from cellblock.inspect.image_graph import GraphEdge, GraphNode, ImageGraph

_BOX_HEIGHT = 52
_ROW_HEIGHT = 118
_GAP = 26
_MARGIN = 16
_PORT_GAP = 14
_LEGEND_HEIGHT = 34
# Widths of a letter of a sans-serif face in px, wide ones included: 15 px bold and 12 px.
_NAME_LETTER, _TEXT_LETTER = 9.0, 6.5

_STYLE = """
.cb { --ink: #1b2430; --soft: #5b6675; --line: #8a94a3; --box: #ffffff; --edge: #c3cad4; --from: #2f6fde;
      --artifacts: #b4610a; --compiled: #7b4bc4; font-family: system-ui, "DejaVu Sans", sans-serif }
@media (prefers-color-scheme: dark) {
.cb { --ink: #e8ecf2; --soft: #a3aebd; --line: #788394; --box: #1f2733; --edge: #445064; --from: #7fb0ff;
      --artifacts: #f0a35a; --compiled: #bb98f0 } }
:root[data-theme="light"] .cb { --ink: #1b2430; --soft: #5b6675; --line: #8a94a3; --box: #ffffff;
      --edge: #c3cad4; --from: #2f6fde; --artifacts: #b4610a; --compiled: #7b4bc4 }
:root[data-theme="dark"] .cb { --ink: #e8ecf2; --soft: #a3aebd; --line: #788394; --box: #1f2733;
      --edge: #445064; --from: #7fb0ff; --artifacts: #f0a35a; --compiled: #bb98f0 }
.cb rect { fill: var(--box); stroke: var(--edge); stroke-width: 1.5 }
.cb .absent rect { stroke-dasharray: 5 4 }
.cb .name { font-size: 15px; font-weight: 600; fill: var(--ink) }
.cb .text { font-size: 12px; fill: var(--soft) }
.cb path { fill: none; stroke-width: 1.8 }
.cb .from { stroke: var(--from) } .cb .artifacts { stroke: var(--artifacts); stroke-dasharray: 6 4 }
.cb .compiled { stroke: var(--compiled); stroke-width: 2.6 }
.cb marker path { stroke: none }
.cb #cb-from path { fill: var(--from) } .cb #cb-artifacts path { fill: var(--artifacts) }
.cb #cb-compiled path { fill: var(--compiled) }
"""
_CLASSES = {"from": "from", "artifacts": "artifacts", "compiled in": "compiled"}
_LEGEND = {"from": "stands on", "artifacts": "gives files to", "compiled in": "compiles"}


def svg(graph: ImageGraph) -> str:
    """An `svg` element with its styles; screen readers get each image's name, size and summary."""
    widths = {node.name: _width(node) for node in graph.nodes}
    edges = [(edge.start, edge.end) for edge in graph.edges]
    placed = place(widths, edges, _ROW_HEIGHT, _GAP)
    ports = _ports(graph.edges, placed)
    kinds = [kind for kind in _LEGEND if any(edge.kind == kind for edge in graph.edges)]
    width = max(placed.width, 120 * len(kinds)) + 2 * _MARGIN
    height = placed.height - (_ROW_HEIGHT - _BOX_HEIGHT) + 2 * _MARGIN + _LEGEND_HEIGHT
    title = f"Images of {graph.variant} and what they need"
    shift = _MARGIN - (_ROW_HEIGHT - _BOX_HEIGHT) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="cb" role="img" aria-label="{escape(title)}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        "<defs>",
        *(_marker(_CLASSES[kind]) for kind in kinds),
        "</defs>",
        f'<g transform="translate({_MARGIN} {shift:.1f})">',
        *(_edge(edge, placed, ports) for edge in graph.edges),
        *(_node(node, placed, widths[node.name]) for node in graph.nodes),
        "</g>",
        *(_legend(kind, number, height) for number, kind in enumerate(kinds)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _width(node: GraphNode) -> float:
    return max(len(node.name) * _NAME_LETTER, len(node.text) * _TEXT_LETTER, 80) + 24


def _marker(name: str) -> str:
    return (
        f'<marker id="cb-{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto" markerUnits="userSpaceOnUse"><path d="M0 0 8 4 0 8z"/></marker>'
    )


def _edge(edge: GraphEdge, placed: Placed, ports: Mapping[tuple[GraphEdge, str], float]) -> str:
    """A smooth line from the box above to the box below, through its places in the rows between."""
    (x, y), (end_x, end_y) = placed.centres[edge.start], placed.centres[edge.end]
    points = [(x + ports[(edge, edge.start)], y + _BOX_HEIGHT / 2)]
    for bend_x, bend_y in placed.bends[(edge.start, edge.end)]:
        # Straight past the boxes of a row between, and bent only where there are none.
        points += [(bend_x, bend_y - _BOX_HEIGHT / 2), (bend_x, bend_y + _BOX_HEIGHT / 2)]
    points.append((end_x + ports[(edge, edge.end)], end_y - _BOX_HEIGHT / 2 - 1))
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for number, ((x0, y0), (x1, y1)) in enumerate(pairwise(points)):
        if number % 2:
            path += f" L{x1:.1f} {y1:.1f}"
        else:
            half = (y1 - y0) / 2
            path += f" C{x0:.1f} {y0 + half:.1f} {x1:.1f} {y1 - half:.1f} {x1:.1f} {y1:.1f}"
    name = _CLASSES[edge.kind]
    return f'<path class="{name}" marker-end="url(#cb-{name})" d="{path}"/>'


def _ports(edges: Sequence[GraphEdge], placed: Placed) -> dict[tuple[GraphEdge, str], float]:
    """How far from a box's middle each of its lines begins and ends, so that arrows lie side by side."""
    ports: dict[tuple[GraphEdge, str], float] = {}
    for name in placed.centres:
        for mine, at_end in (
            ([e for e in edges if e.end == name], True),
            ([e for e in edges if e.start == name], False),
        ):

            def towards(edge: GraphEdge, at_end: bool = at_end) -> float:
                bends = placed.bends[(edge.start, edge.end)]
                other = placed.centres[edge.start if at_end else edge.end]
                return (bends[-1 if at_end else 0] if bends else other)[0]

            for number, edge in enumerate(sorted(mine, key=towards)):
                ports[(edge, name)] = (number - (len(mine) - 1) / 2) * _PORT_GAP
    return ports


def _node(node: GraphNode, placed: Placed, width: float) -> str:
    x, y = placed.centres[node.name]
    left, top = x - width / 2, y - _BOX_HEIGHT / 2
    return (
        f'<g class="{"built" if node.built else "absent"}">'
        f"<title>{escape(f'{node.name}: {node.summary}')}</title>"
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{_BOX_HEIGHT}" rx="8"/>'
        f'<text class="name" x="{x:.1f}" y="{y - 4:.1f}" text-anchor="middle">{escape(node.name)}</text>'
        f'<text class="text" x="{x:.1f}" y="{y + 15:.1f}" text-anchor="middle">{escape(node.text)}</text></g>'
    )


def _legend(kind: str, number: int, height: float) -> str:
    name, x, y = _CLASSES[kind], _MARGIN + number * 124, height - _MARGIN
    return (
        f'<path class="{name}" marker-end="url(#cb-{name})" d="M{x} {y - 4:.0f}h24"/>'
        f'<text class="text" x="{x + 30}" y="{y:.0f}">{escape(_LEGEND[kind])}</text>'
    )
