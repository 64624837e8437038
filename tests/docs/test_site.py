# SPDX-License-Identifier: Apache-2.0
"""The site: it is built strictly, loads nothing from elsewhere, and each page has its place and kind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cellblock.docs import generated
from cellblock.docs.site import DocsError, build_site
from cellblock.paths import PROJECT

DOCS = PROJECT / "docs"
_KINDS = {"Tutorials": "Tutorial", "How-to": "How-to", "Reference": "Reference", "Explanation": "Explanation"}
# What a browser fetches by itself; links that a reader follows are not.
_LOADED = re.compile(r'<(?:script|img|iframe|link|source)\b[^>]*?\b(?:src|href)="(?:https?:)?//[^"]*"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert build_site(folder) > 70
    return folder


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = [path.read_text() for path in site.rglob("*.html")]
    assert [found for page in pages for found in _LOADED.findall(page)] == []
    # The theme would fetch a script for these.
    assert not any('class="mermaid"' in page or "language-mermaid" in page for page in pages)
    styles = [path.read_text() for path in site.rglob("*.css")]
    assert not any(re.search(r"url\([\"']?(?:https?:)?//", style) for style in styles)


def test_generated_pages_and_decisions_are_in_it(site: Path) -> None:
    for path in generated.pages():
        place = path.removesuffix("index.md").removesuffix(".md")
        assert (site / place / "index.html").exists(), path
    assert 'id="jail-upgrade"' in (site / "reference/commands/index.html").read_text()
    assert "cb-chart" in (site / "architecture/index.html").read_text()


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# One\n\n[two](two.md) and [three](#three)\n")
    (tmp_path / "mkdocs.yml").write_text(
        "site_name: x\nvalidation: {links: {not_found: warn, anchors: warn}}\nplugins: []\n"
    )
    monkeypatch.setattr("cellblock.docs.site.PROJECT", tmp_path)
    with pytest.raises(DocsError, match=r"(?s)two\.md.*#three"):
        build_site(tmp_path / "site")


def navigation(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        yield from navigation(value) if isinstance(value, list) else [value]


def test_each_page_says_of_which_kind_it_is() -> None:
    text = re.sub(r"!!python\S+ ", "", (PROJECT / "mkdocs.yml").read_text())
    for section in yaml.safe_load(text)["nav"]:
        kind = _KINDS.get(next(iter(section)))
        for path in navigation([section]) if kind else []:
            page = generated.pages().get(path) or (DOCS / path).read_text()
            found = re.match(r"# .+\n\n\*(Tutorial|How-to|Reference|Explanation|Start page)\b", page)
            assert found, f"{path} does not say below its title of which kind it is"
            assert found[1] in (kind, "Start page"), f"{path} is listed as {kind}"


def test_each_decision_is_linked_from_the_page_that_it_decides_about() -> None:
    pages = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *DOCS.glob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    assert [page.name for page in generated.decisions() if f"decisions/{page.name}" not in text] == []
