# SPDX-License-Identifier: Apache-2.0
"""The packages that Slurm is compiled with: resolved once, exactly those, and all of them in the key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.build.mirrors import Archive
from cellblock.build.toolchain import LockedToolchain
from cellblock.errors import DefinitionError
from cellblock.events import Events
from cellblock.paths import PROJECT
from cellblock.variants import load_variants
from tests.packages.small_archive import SmallArchive

DEBIAN = load_variants(PROJECT / "images" / "variants.yaml")["debian13"]


@pytest.fixture
def toolchain(tmp_path: Path) -> tuple[SmallArchive, LockedToolchain]:
    small = SmallArchive(tmp_path / "archive")
    for name, fields in {
        "base-files": {"Essential": "yes"},
        "apt": {},
        "libc": {},
        "gcc": {"Depends": "libc"},
    }.items():
        small.add(name, **fields)
    small.publish()
    source = Archive((f"deb [trusted=yes] file://{small.folder} trixie main",))
    return small, LockedToolchain(DEBIAN, source, tmp_path / "cache", Events())


def test_another_version_of_a_package_below_is_another_key(
    toolchain: tuple[SmallArchive, LockedToolchain],
) -> None:
    small, made = toolchain
    before = made.key(["gcc"])
    assert before != made.key(["libc"])
    small.add("libc", "2")
    small.publish()
    again = replace(made, _known={})
    assert again.key(["gcc"]) == before, "what was resolved is kept"
    updated = replace(made, update=True, _known={})
    after = updated.key(["gcc"])
    assert after != before
    assert updated.key(["gcc"]) == replace(made, _known={}).key(["gcc"]) == after


def test_a_mirror_elsewhere_with_the_same_packages_gives_the_same_key(
    toolchain: tuple[SmallArchive, LockedToolchain], tmp_path: Path
) -> None:
    small, made = toolchain
    small.folder.rename(tmp_path / "elsewhere")
    source = Archive((f"deb [trusted=yes] file://{tmp_path}/elsewhere trixie main",))
    there = replace(made, archive=source, cache=tmp_path / "other", _known={})
    key = there.key(["gcc"])
    (tmp_path / "elsewhere").rename(small.folder)
    assert key == made.key(["gcc"])


def test_a_package_that_is_not_there_is_named(toolchain: tuple[SmallArchive, LockedToolchain]) -> None:
    with pytest.raises(DefinitionError, match="no-such-compiler") as raised:
        toolchain[1].key(["no-such-compiler"])
    assert "the toolchain of variant debian13" in str(raised.value)
