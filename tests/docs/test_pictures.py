# SPDX-License-Identifier: Apache-2.0
"""Pictures of the documentation are made of what they show."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from cellblock.docs import terminal
from cellblock.docs.diagram import DiagramError, svg


def test_the_picture_of_up_is_drawn_from_its_recording() -> None:
    picture = terminal.PICTURE.read_text()
    write = "draw it again: cellblock/docs/terminal.py says how"
    assert terminal.draw(terminal.RECORDING.read_text()) == picture, write
    ET.fromstring(picture)
    # The namespace is the one address in it.
    assert set(re.findall(r"https?://[^\"]+", picture)) == {"http://www.w3.org/2000/svg"}


def test_a_recording_is_the_last_screen_without_the_clusters_name() -> None:
    typescript = (
        "Script started\nbase  \x1b[33mbuild\x1b[0m\r\n\x1b[2K\x1b[1A\x1b[2Kbase  \x1b[32mdone\x1b[0m\r\n"
        "\x1b[?25h\r\nNext:\r\n  build.py shell --name abc  a shell\r\n  srun                       a job\r\n"
        "  ssh root@127.0.0.1\r\n      host key: SHA256:x (ED25519)\r\n"
        "Script done\n"
    )
    assert terminal.last_screen(typescript, "abc") == (
        "base  \x1b[32mdone\x1b[0m\n\nNext:\n  build.py shell  a shell\n  srun            a job\n"
        "  ssh root@127.0.0.1\n      host key: SHA256:x (ED25519)\n"
    )


def test_a_flowchart_has_each_box_and_each_line() -> None:
    text = 'flowchart LR\n  a["one<br>file.py"] -->|reads| b["two"]\n  a --> c\n  c --> d["four & more"]\n'
    drawn = svg(text, "a title")
    root = ET.fromstring(drawn)
    words = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert sorted(words) == sorted(["reads", "one", "file.py", "two", "c", "four & more"])
    assert len(list(root.iter("{http://www.w3.org/2000/svg}rect"))) == 4
    assert drawn.count('marker-end="url(#cb-tip)"') == 3


def test_labels_lie_within_the_picture_and_apart() -> None:
    text = "flowchart TB\n  a -->|to the left one| b\n  a -->|to the right one| c\n"
    root = ET.fromstring(svg(text, ""))
    left, _, width, _ = map(float, root.attrib["viewBox"].split())
    labels = sorted(
        (float(each.attrib["x"]), len(each.text or "") * 6.0)
        for each in root.iter("{http://www.w3.org/2000/svg}text")
        if each.attrib["class"] == "on"
    )
    spans = [(middle - size / 2, middle + size / 2) for middle, size in labels]
    assert len(spans) == 2
    assert left <= spans[0][0]
    assert spans[0][1] < spans[1][0]
    assert spans[1][1] <= left + width


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("graph TD\n a --> b", "begins with"),
        ("flowchart LR\n a ==> b", "has the line"),
        ("flowchart LR\n a --> b\n b --> a", "in a circle"),
    ],
)
def test_what_cannot_be_drawn_is_an_error(text: str, said: str) -> None:
    with pytest.raises(DiagramError, match=said):
        svg(text, "")
