# SPDX-License-Identifier: Apache-2.0
"""Writes the graph of images as text that other tools draw: Mermaid (flowcharts) and DOT (graphviz)."""

from __future__ import annotations

from cellblock.inspect.image_graph import EdgeKind, GraphNode, ImageGraph

_MERMAID_ARROWS: dict[EdgeKind, str] = {
    "from": "-->",
    "artifacts": "-. artifacts .->",
    "compiled in": "== compiles ==>",
}
_DOT_STYLES: dict[EdgeKind, str] = {
    "from": "",
    "artifacts": ' [style=dashed, label="artifacts"]',
    "compiled in": ' [style=bold, label="compiles"]',
}


def mermaid(graph: ImageGraph) -> str:
    """A flowchart for Markdown; GitHub and GitLab draw it."""
    # An id of its own: an image may be called like one of Mermaid's words ("end").
    ids = {node.name: f"i{number}" for number, node in enumerate(graph.nodes)}
    lines = [
        "flowchart TB",
        *(f'  {ids[node.name]}["<b>{node.name}</b><br/>{_lines(node)}"]' for node in graph.nodes),
        *(f"  {ids[edge.start]} {_MERMAID_ARROWS[edge.kind]} {ids[edge.end]}" for edge in graph.edges),
    ]
    missing = [ids[node.name] for node in graph.nodes if node.built is None]
    if missing:
        lines += ["  classDef missing stroke-dasharray: 4 3", f"  class {','.join(missing)} missing"]
    return "\n".join(lines) + "\n"


def _lines(node: GraphNode) -> str:
    """Cut where it reads well: Mermaid wraps after 200 px wherever that is."""
    return node.text.replace(" (", "<br/>(")


def dot(graph: ImageGraph) -> str:
    """A digraph; draw it with `dot -Tsvg`."""
    lines = [
        f"digraph {_quoted('images of ' + graph.variant)} {{",
        '  node [shape=box, style=rounded, fontname="sans-serif"];',
        '  edge [fontname="sans-serif", fontsize=10];',
        *(f"  {_quoted(node.name)} [{_dot_attributes(node)}];" for node in graph.nodes),
        *(f"  {_quoted(edge.start)} -> {_quoted(edge.end)}{_DOT_STYLES[edge.kind]};" for edge in graph.edges),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _dot_attributes(node: GraphNode) -> str:
    label = _quoted(f"{node.name}\n{node.text}")
    style = "" if node.built else ', style="rounded,dashed"'
    return f"label={label}, tooltip={_quoted(node.summary)}{style}"


def _quoted(text: str) -> str:
    """A quoted string of DOT: \\" and the escape of a new line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
