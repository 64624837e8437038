# SPDX-License-Identifier: Apache-2.0
"""tests/slow.txt: each of its lines names tests that there are."""

from __future__ import annotations

import pytest

from cellblock.paths import PROJECT
from tests.conftest import slow_places


@pytest.mark.parametrize("place", slow_places())
def test_each_line_names_a_file_or_a_test(place: str) -> None:
    path, _, name = place.partition("::")
    assert (PROJECT / path).exists()
    assert not name or f"def {name.partition('[')[0]}(" in (PROJECT / path).read_text()
