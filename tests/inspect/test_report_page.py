# SPDX-License-Identifier: Apache-2.0
"""The report's page in a real browser (headless Chromium): what a person sees, and can do with keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from cellblock import paths
from cellblock.definition import load_images
from cellblock.inspect.image_graph import image_graph
from cellblock.inspect.report import report
from cellblock.inspect.report_page import page as render
from cellblock.store.record import ImageRecord
from cellblock.text.amount import amount_of_bytes
from tests.browser import running_browser
from tests.inspect.variant import HOSTILE, build_variant


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, ImageRecord]]:
    folder = tmp_path_factory.mktemp("report")
    layout, records = build_variant(folder / "images")
    graph = image_graph("debian13", load_images(paths.PROJECT / "images"), records)
    made = datetime(2026, 5, 13, tzinfo=timezone.utc)
    data = report("debian13", "Debian 13", records, layout, graph, made)
    path = folder / "report.html"
    path.write_text(render(data), encoding="utf-8")
    return path, records


@pytest.fixture
def page(browser: Browser, built: tuple[Path, dict[str, ImageRecord]]) -> Iterator[Page]:
    """The page, opened; whatever the test does, it may neither complain nor load anything."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(built[0].as_uri())
    yield page
    page.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith("data:")] == [built[0].as_uri()]


@pytest.fixture
def records(built: tuple[Path, dict[str, ImageRecord]]) -> dict[str, ImageRecord]:
    return built[1]


def tiles(page: Page) -> dict[str, str]:
    """Name -> amount of the tiles in view, as a screen reader says them."""
    labels = page.locator("#treemap > button").evaluate_all("all => all.map((tile) => tile.ariaLabel)")
    return dict(label.split(", ")[:2] for label in labels)


def test_a_node_pulls_each_layer_of_worker_and_jail_once(page: Page, records: dict[str, ImageRecord]) -> None:
    sizes = {layer.digest: layer.size for name in ("worker", "jail") for layer in records[name].layers}
    assert page.text_content("#node-size") == amount_of_bytes(sum(sizes.values()))


def test_tables_say_what_the_records_say(page: Page, records: dict[str, ImageRecord]) -> None:
    for name, record in records.items():
        row = page.locator(f'tr[data-image="{name}"]').inner_text()
        assert amount_of_bytes(sum(layer.size for layer in record.layers)) in row
        assert amount_of_bytes(sum(layer.uncompressed for layer in record.layers)) in row
        for layer in record.layers:
            row = page.locator(f'tr[data-layer="{layer.digest}"]').inner_text()
            assert layer.title in row
            assert amount_of_bytes(layer.size) in row
    base = page.locator(f'tr[data-layer="{records["base"].layers[0].digest}"] .dot span.kind-base')
    assert base.count() == 3
    assert "3 min 03 s" in page.locator('tr[data-image="jail"]').inner_text()
    spent = [re.sub(r"\s+", " ", each) for each in page.locator(".time").all_inner_texts()]
    assert spent == [f"packages of {image} 2 min 01 s" for image in ("base", "worker", "jail")]
    assert page.text_content("#lock-age") == "12 days"


def test_the_treemap_shows_layers_with_the_bytes_of_the_records(
    page: Page, records: dict[str, ImageRecord]
) -> None:
    layers = {layer.title: layer for record in records.values() for layer in record.layers}
    assert tiles(page) == {title: amount_of_bytes(layer.uncompressed) for title, layer in layers.items()}


def test_areas_are_in_proportion_to_bytes(page: Page, records: dict[str, ImageRecord]) -> None:
    areas: dict[str, float] = page.locator("#treemap > button").evaluate_all(
        "all => Object.fromEntries(all.map((tile) => "
        "[tile.ariaLabel.split(', ')[0], parseFloat(tile.style.width) * parseFloat(tile.style.height)]))"
    )
    layers = {layer.title: layer.uncompressed for record in records.values() for layer in record.layers}
    whole, total = sum(areas.values()), sum(layers.values())
    for title, size in layers.items():
        assert areas[title] / whole == pytest.approx(size / total, rel=0.001)


def test_keys_go_into_a_layer_and_a_package_and_back(page: Page) -> None:
    page.locator("#treemap > button").first.focus()
    page.keyboard.press("Enter")
    assert page.text_content("#crumbs b") == "packages of base (3.2 MB)"
    assert {"libc6": "2.0 MB", "bash": "1.2 MB"}.items() <= tiles(page).items()
    page.keyboard.press("Enter")
    assert list(tiles(page)) == ["libc.so.6", "all other files"]
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    assert len(tiles(page)) == 3
    focused = "document.activeElement.ariaLabel"
    assert page.evaluate(focused).startswith("packages of base")
    page.keyboard.press("ArrowRight")
    assert not page.evaluate(focused).startswith("packages of base")


def test_a_click_zooms_and_the_path_leads_back(page: Page) -> None:
    page.locator("#treemap > button", has_text="packages of worker").click(position={"x": 5, "y": 5})
    assert {"slurmd", "of no package"} == set(tiles(page))
    assert "slurmd" in page.inner_text("#largest")
    page.locator("#crumbs button").click()
    assert len(tiles(page)) == 3


def test_one_image_can_be_looked_at_alone(page: Page) -> None:
    page.select_option("#scope", label="jail")
    assert set(tiles(page)) == {"packages of base", "packages of jail"}


def test_names_are_text_whatever_they_contain(page: Page) -> None:
    page.on("dialog", lambda dialog: pytest.fail(f"a name was executed: {dialog.message}"))
    assert HOSTILE in page.inner_text("#package-table")
    assert page.locator('img[src="x"]').count() == 0


def test_packages_can_be_searched(page: Page) -> None:
    page.fill("#find", "libc 2.41")
    rows = page.locator("#package-table tbody tr:visible")
    assert rows.count() == 1
    assert re.sub(r"\s+", " ", rows.inner_text()) == "libc6 2.41-12 2.0 MB packages of base"
    assert page.text_content("#found") == "1 package"


@pytest.mark.parametrize("width", [360, 700, 1600])
def test_the_page_fits_its_window(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(page: Page, scheme: str) -> None:
    """Contrast of body text and of soft text with what is behind, as WCAG 2.2 measures it: 4.5 at least."""
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    for selector, behind in (
        ("h2", "section"),
        (".soft", "body"),
        (".card dt", ".card"),
        ("body > nav a", "body"),
    ):
        assert _contrast(page, selector, behind) >= 4.5, selector
    before = _contrast(page, "h2", "section")
    page.click("#theme")
    assert _contrast(page, "h2", "section") != before


def _contrast(page: Page, selector: str, behind: str) -> float:
    def luminance(element: str, what: str) -> float:
        color = page.locator(element).first.evaluate(f"(one) => getComputedStyle(one).{what}")
        channels = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
        linear = [
            value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted([luminance(selector, "color"), luminance(behind, "backgroundColor")])
    return (light + 0.05) / (dark + 0.05)
