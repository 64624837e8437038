# SPDX-License-Identifier: Apache-2.0
"""Lines of sources.list(5), with further mirrors of one archive."""

from __future__ import annotations

import pytest

from cellblock.errors import UsageError
from cellblock.lock.archives import PackageArchive, parse_line


@pytest.mark.parametrize(
    ("line", "archive"),
    [
        (
            "deb http://a.test/debian trixie main",
            PackageArchive(("http://a.test/debian",), "trixie", ("main",)),
        ),
        (
            "deb  [trusted=yes arch=amd64]  file:/opt/x/  noble  main  universe ",
            PackageArchive(("file:/opt/x",), "noble", ("main", "universe"), ("trusted=yes", "arch=amd64")),
        ),
        ("deb file:/opt/x ./", PackageArchive(("file:/opt/x",), "./")),
    ],
)
def test_a_line_is_read_and_written_again(line: str, archive: PackageArchive) -> None:
    assert parse_line(line) == archive
    assert parse_line(archive.line) == archive


def test_further_mirrors_are_kept_in_order_and_once() -> None:
    archive = parse_line("deb http://a.test trixie main", ["http://b.test/", "http://a.test"])
    assert archive.uris == ("http://a.test", "http://b.test")
    assert archive.line_at("http://b.test") == "deb http://b.test trixie main"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "http://a.test",
        "deb-src http://a.test trixie main",
        "deb http://a.test trixie",
        "deb http://a ./ main",
    ],
)
def test_what_is_no_line_of_an_archive_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match="no line of an archive"):
        parse_line(line)
