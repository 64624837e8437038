# SPDX-License-Identifier: Apache-2.0
"""Starts a browser in which tests open pages of this project."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

_NAMES = ("chromium-headless-shell", "chromium")


@contextmanager
def running_browser(*options: str) -> Iterator[Browser]:
    """This machine's Chromium. Skips the test where there is none."""
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser to open the page in: install {' or '.join(_NAMES)}")
    with sync_playwright() as playwright:
        # As root Chromium refuses its sandbox; the pages are our own.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", *options])
        yield browser
        browser.close()
