# SPDX-License-Identifier: Apache-2.0
"""The picture of the report in README.md is a photograph of the page, and shows it as it is now.

    python3 build.py report --output report.html
    CELLBLOCK_DRAW_REPORT=report.html python3 build.py test tests/docs/test_report_picture.py

makes it anew from the images that were built. What the page was made of is written into the picture.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from cellblock.definition import load_images
from cellblock.inspect.image_graph import image_graph
from cellblock.inspect.report import report
from cellblock.inspect.report_page import page as render
from cellblock.paths import PROJECT
from tests.browser import running_browser
from tests.inspect.variant import build_variant

_PICTURE = PROJECT / "docs/images/report.png"
_SIZE = (1200, 760)
_KEY = b"cellblock structure"
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# What the page says whatever images it tells of: its parts, cards and headings.
# Tables with a column for each image, or for each step of a build, are left out.
_WORDS = ".kicker, nav a, dt, h2, h3, label, section:not(#common):not(#time) thead th:not(.turn)"
_LOOK = """words => [...document.querySelectorAll(words)]
    .map(each => [each.tagName, each.childNodes[0]?.textContent.trim() ?? ""])"""


def chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Type and content of the parts of a PNG file (W3C PNG, 5.3)."""
    assert png.startswith(_SIGNATURE)
    at = len(_SIGNATURE)
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        yield kind, png[at + 8 : at + 8 + length]
        at += 12 + length


def with_text(png: bytes, text: str) -> bytes:
    """The picture with a compressed text that says what it shows."""
    parts = list(chunks(png))
    parts.insert(1, (b"zTXt", _KEY + b"\0\0" + zlib.compress(text.encode("latin-1", "replace"), 9)))
    written = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return _SIGNATURE + b"".join(written)


def text_of(png: bytes) -> str:
    found = [data for kind, data in chunks(png) if kind == b"zTXt" and data.startswith(_KEY + b"\0")]
    assert found, f"{_PICTURE.name} does not say what it shows: draw it again, see {__file__}"
    return zlib.decompress(found[0][len(_KEY) + 2 :]).decode("latin-1")


def structure(page: Page) -> list[list[str]]:
    """Its parts in their order, without numbers."""
    return [[tag, re.sub(r"\d+", "#", words)] for tag, words in page.evaluate(_LOOK, _WORDS)]


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with running_browser("--hide-scrollbars") as browser:
        page = browser.new_page(viewport={"width": _SIZE[0], "height": _SIZE[1]}, color_scheme="light")
        page.set_default_timeout(120_000)
        yield page


def test_the_picture_shows_the_page_as_it_is(page: Page, tmp_path: Path) -> None:
    asked = os.environ.get("CELLBLOCK_DRAW_REPORT")
    if asked:
        page.goto((PROJECT / asked).as_uri())
        _PICTURE.write_bytes(with_text(page.screenshot(), json.dumps(structure(page))))
    layout, records = build_variant(tmp_path / "images")
    graph = image_graph("debian13", load_images(PROJECT / "images"), records)
    made = datetime(2026, 5, 13, tzinfo=timezone.utc)
    (tmp_path / "report.html").write_text(
        render(report("debian13", "Debian 13", records, layout, graph, made)), encoding="utf-8"
    )
    page.goto((tmp_path / "report.html").as_uri())
    shown: list[Any] = json.loads(text_of(_PICTURE.read_bytes()))
    assert shown == structure(page), f"the picture is old: {__file__} says how it is made"


def test_the_picture_has_the_size_of_a_window() -> None:
    header = next(data for kind, data in chunks(_PICTURE.read_bytes()) if kind == b"IHDR")
    assert struct.unpack(">II", header[:8]) == _SIZE
