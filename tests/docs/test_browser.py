# SPDX-License-Identifier: Apache-2.0
"""The site in a real browser (headless Chromium): it opens, asks nobody else, and its search finds."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Error, Page

from cellblock.docs.site import build_site
from tests.browser import running_browser

# One page of each kind: a picture, flowcharts, wide tables, a long list.
_PAGES = ("", "architecture/", "jail-plan/", "reference/commands/", "decisions/")
# What Chromium ends each request with when an interface of the machine comes or goes.
_CHANGED = "ERR_NETWORK_CHANGED"
_TRIES = 10


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """A log of each file would hide what the test says."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the site is shown: on this machine alone."""
    folder = tmp_path_factory.mktemp("site")
    build_site(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with running_browser() as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        # On a busy machine the page takes its time.
        page.set_default_timeout(120_000)
        yield page


def open_page(page: Page, url: str, complaints: list[str] | None = None) -> None:
    """Open a page, and again while the machine's networks change: clusters of other tests begin and end."""
    heard = complaints if complaints is not None else []
    for last in (False,) * (_TRIES - 1) + (True,):
        before = len(heard)
        try:
            page.goto(url, wait_until="networkidle")
        except Error as error:
            if last or _CHANGED not in str(error):
                raise
        else:
            if last or not any(_CHANGED in one for one in heard[before:]):
                return
        del heard[before:]


def test_pages_open_without_a_complaint_and_ask_nobody_else(page: Page, address: str) -> None:
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(f"{request.url}: {request.failure}"))
    page.on("request", lambda request: asked.append(request.url))
    for path in _PAGES:
        open_page(page, address + path, complaints)
        assert page.locator("h1").inner_text().strip("¶ ")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{path} is wider than the window"
    assert complaints == []
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []


def test_the_search_finds_a_word_of_ours(page: Page, address: str) -> None:
    open_page(page, address)
    # Typed, as a person does: the search listens to keys.
    page.locator("input[name=query]").click()
    page.keyboard.type("three-way merge")
    page.locator(".md-search-result__link").first.wait_for(timeout=120_000)
    assert "merge" in page.locator(".md-search-result").inner_text().lower()


def test_pictures_are_shown(page: Page, address: str) -> None:
    open_page(page, address)
    assert page.locator("img[src*='up.svg']").evaluate("image => image.naturalWidth") > 500
    open_page(page, f"{address}architecture/")
    assert page.locator("svg.cb-chart").count() == 5
