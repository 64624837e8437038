# SPDX-License-Identifier: Apache-2.0
"""The graph of images, as data, Mermaid, DOT and SVG."""

from __future__ import annotations

import re
import shutil
import subprocess
from xml.etree import ElementTree

import pytest

from cellblock import paths
from cellblock.definition import load_images
from cellblock.inspect.graph_layout import place
from cellblock.inspect.graph_svg import svg
from cellblock.inspect.graph_text import dot, mermaid
from cellblock.inspect.image_graph import GraphEdge, ImageGraph, image_graph
from cellblock.store.record import ImageRecord


@pytest.fixture
def graph(records: dict[str, ImageRecord]) -> ImageGraph:
    return image_graph("debian13", load_images(paths.PROJECT / "images"), records)


def test_edges_say_why_an_image_needs_another(graph: ImageGraph) -> None:
    assert {
        GraphEdge("base", "slurm", "from"),
        GraphEdge("plugins", "worker", "artifacts"),
        GraphEdge("toolchain", "plugins", "compiled in"),
    } <= set(graph.edges)


def test_a_built_image_has_sizes_and_what_it_adds_to_its_parent(graph: ImageGraph) -> None:
    text = {node.name: node.text for node in graph.nodes}
    assert text["worker"] == "5 layers, 52.0 MB (10.0 MB own)"
    assert text["base"] == "1 layer, 30.0 MB"
    assert text["jail"] == "not built here"


def test_what_is_of_earlier_inputs_says_so_and_what_was_not_built_does_not(
    records: dict[str, ImageRecord],
) -> None:
    graph = image_graph("debian13", load_images(paths.PROJECT / "images"), records, ("base", "jail"))
    text = {node.name: node.text for node in graph.nodes}
    assert text["base"] == "1 layer, 30.0 MB, of earlier inputs"
    assert text["jail"] == "not built here"
    assert text["worker"] == "5 layers, 52.0 MB (10.0 MB own)"
    assert "30.0 MB, of earlier inputs" in mermaid(graph)


def test_mermaid_names_every_image_and_need(graph: ImageGraph) -> None:
    text = mermaid(graph)
    ids = {name: number for number, name in re.findall(r'(i\d+)\["<b>([\w-]+)</b>', text)}
    assert set(ids) == {node.name for node in graph.nodes}
    assert f"  {ids['base']} --> {ids['slurm']}\n" in text
    assert f"  {ids['plugins']} -. artifacts .-> {ids['worker']}\n" in text
    assert f"  {ids['toolchain']} == compiles ==> {ids['plugins']}\n" in text


def test_dot_quotes_what_it_names(graph: ImageGraph) -> None:
    text = dot(graph)
    assert '"base" [label="base\\n1 layer, 30.0 MB"' in text
    assert '"plugins" -> "worker" [style=dashed, label="artifacts"];' in text
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tplain"], input=text, text=True, check=True, capture_output=True)


def test_the_picture_is_well_formed_and_says_all_that_the_graph_says(graph: ImageGraph) -> None:
    picture = ElementTree.fromstring(svg(graph))
    space = {"s": "http://www.w3.org/2000/svg"}
    shown = {text.text for text in picture.iterfind(".//s:text", space)}
    assert {node.name for node in graph.nodes} | {node.text for node in graph.nodes} <= shown
    titles = {title.text for title in picture.iterfind(".//s:title", space)}
    assert {f"{node.name}: {node.summary}" for node in graph.nodes} <= titles
    lines = list(picture.iterfind("./s:g/s:path", space))
    assert len(lines) == len(graph.edges)


def test_boxes_of_a_row_do_not_overlap_and_edges_point_down() -> None:
    names = [f"n{number}" for number in range(12)]
    edges = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if (ord(b[-1]) + i) % 3 == 0]
    widths = {name: 60.0 + 10 * number for number, name in enumerate(names)}
    placed = place(widths, edges, 100, 20)
    for one in names:
        for other in names:
            (x, y), (other_x, other_y) = placed.centres[one], placed.centres[other]
            if one != other and y == other_y:
                assert abs(x - other_x) >= (widths[one] + widths[other]) / 2 + 20 - 1e-6
    assert all(placed.centres[a][1] < placed.centres[b][1] for a, b in edges)
    assert min(x - widths[name] / 2 for name, (x, _) in placed.centres.items()) >= -1e-6


def test_an_empty_graph_is_a_picture_too() -> None:
    ElementTree.fromstring(svg(ImageGraph("none", (), ())))
