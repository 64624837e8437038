# SPDX-License-Identifier: Apache-2.0
"""Which releases of Slurm read what others wrote."""

from __future__ import annotations

import pytest

from cellblock.errors import UsageError
from cellblock.slurm_releases import MAJOR, direct_steps, readable, refuse_indirect


@pytest.mark.parametrize(
    ("release", "reads"),
    # The table of Slurm's Upgrade Guide, "Compatibility window".
    [
        ("23.02", ("21.08", "22.05")),
        ("23.11", ("22.05", "23.02")),
        ("24.05", ("23.02", "23.11")),
        ("24.11", ("23.02", "23.11", "24.05")),
        ("25.05", ("23.11", "24.05", "24.11")),
        ("25.11", ("24.05", "24.11", "25.05")),
        ("26.05", ("24.11", "25.05", "25.11")),
        ("19.05", ()),
    ],
)
def test_a_release_reads_those_of_slurms_own_table(release: str, reads: tuple[str, ...]) -> None:
    assert readable(release) == reads


@pytest.mark.parametrize(
    ("old", "new", "steps"),
    [
        ("24.11", "26.05", ("26.05",)),
        ("22.05", "24.11", ("23.11", "24.11")),
        ("22.05", "26.05", ("23.11", "25.05", "26.05")),
        ("26.05", "24.11", ()),
        ("24.11", "24.11", ()),
        ("19.05", "24.11", ()),
    ],
)
def test_the_steps_are_direct_and_few(old: str, new: str, steps: tuple[str, ...]) -> None:
    assert direct_steps(old, new) == steps
    for one, next_one in zip((old, *steps), steps, strict=False):
        assert one in readable(next_one)


@pytest.mark.parametrize("old", MAJOR)
@pytest.mark.parametrize("new", MAJOR)
def test_what_is_refused_says_the_way(old: str, new: str) -> None:
    if new == old or old in readable(new):
        refuse_indirect(old, new, way_back="back")
        return
    with pytest.raises(UsageError) as caught:
        refuse_indirect(old, new, way_back="back")
    if new < old:
        assert caught.value.hint == "back"
        assert f"Slurm {new} does not read what {old} wrote: there is no downgrade" in caught.value.message
    else:
        assert " -> ".join((old, *direct_steps(old, new))) in caught.value.hint


def test_a_release_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="it reads no other") as caught:
        refuse_indirect("24.11", "30.05", way_back="back")
    assert "26.05" in caught.value.hint
