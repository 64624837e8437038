# SPDX-License-Identifier: Apache-2.0
"""Each code block of the documentation is typed by a test, or tests/docs/blocks.yaml says why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cellblock.paths import PROJECT
from tests import documented

_LISTED = documented.listed()


def test_the_list_has_no_page_that_is_gone() -> None:
    assert set(_LISTED) <= {documented.name_of(page) for page in documented.pages()}


@pytest.mark.parametrize("page", documented.pages(), ids=documented.name_of)
def test_each_block_of_a_page_is_typed_or_has_a_reason(page: Path) -> None:
    name = documented.name_of(page)
    blocks = list(documented.blocks_of(page))
    starts = [entry["block"] for entry in _LISTED.get(name, [])]
    for block in blocks:
        fitting = [start for start in starts if block.first.startswith(start)]
        assert len(fitting) == 1, (
            f"docs/{name}:{block.number}: {block.first}\ntests/docs/blocks.yaml has {fitting or 'nothing'} "
            f"for this block: name the test that types it, or the reason that none does"
        )
    unused = [start for start in starts if not any(block.first.startswith(start) for block in blocks)]
    assert unused == [], f"tests/docs/blocks.yaml has blocks that docs/{name} has not"


def test_each_entry_names_a_test_that_reads_the_page_or_a_reason() -> None:
    for page, entries in _LISTED.items():
        for entry in entries:
            assert len({"typed", "not_typed"} & set(entry)) == 1, f"{page}: {entry}"
            if "typed" not in entry:
                assert len(entry["not_typed"].split()) > 3, f"{page}: {entry}: a reason is a sentence"
                continue
            path, _, test = entry["typed"].partition("::")
            text = (PROJECT / path).read_text()
            assert re.search(rf"^def {test}\(", text, re.MULTILINE), (
                f"{page}: there is no test {entry['typed']}"
            )
            assert page.rpartition("/")[2] in text, f"{page}: {path} does not read this page"


def test_blocks_are_found_in_what_pages_look_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documented, "PROJECT", tmp_path)
    page = tmp_path / "docs/page.md"
    page.parent.mkdir()
    page.write_text(
        "# A\n\n    one  # said\n    two \\\n        three\n\n    four\n\n- item\n    more\n\n"
        "```yaml\na: 1\n\n    b\n```\n"
    )
    found = list(documented.blocks_of(page))
    assert [(block.page, block.number, block.language) for block in found] == [
        ("page.md", 3, ""),
        ("page.md", 12, "yaml"),
    ]
    assert found[0].lines == ["one", "two three", "four"]
