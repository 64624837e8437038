# SPDX-License-Identifier: Apache-2.0
"""Definitions are read when they are asked for, once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.errors import UsageError
from cellblock.project import Project


@pytest.fixture
def definitions(tmp_path: Path) -> Path:
    for name, text in {
        "a": "summary: a\nfrom: b\n",
        "b": "summary: b\n",
        "c": "summary: c\ndefault: false\n",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "image.yaml").write_text(text)
    shutil.copy(paths.PROJECT / "images" / "variants.yaml", tmp_path)
    return tmp_path


def test_images_stand_in_build_order_those_built_by_default_when_none_is_named(definitions: Path) -> None:
    project = Project(definitions)
    assert [image.name for image in project.in_order()] == ["b", "a"]
    assert [image.name for image in project.in_order(["c"])] == ["c"]
    assert {image.name for image in project.all_in_order()} == {"a", "b", "c"}
    with pytest.raises(UsageError, match="nothere"):
        project.in_order(["nothere"])


def test_an_image_is_a_jail_by_a_file_that_it_or_one_below_it_has(definitions: Path) -> None:
    for name, text in {"j": "summary: j\n", "k": "summary: k\nfrom: j\n"}.items():
        (definitions / name).mkdir()
        (definitions / name / "image.yaml").write_text(text)
    (definitions / "j/files/etc/cellblock").mkdir(parents=True)
    (definitions / "j/files/etc/cellblock/jail-release").touch()
    assert Project(definitions).jails == ("j", "k")
    assert Project().jails == ("jail", "jail-devel")
    with pytest.raises(UsageError, match=r"^image a is no jail") as raised:
        Project(definitions).refuse_other_than_jail("a")
    assert "j, k" in raised.value.hint


def test_files_are_read_once(definitions: Path) -> None:
    project = Project(definitions)
    first = project.variant("debian13"), project.images
    shutil.rmtree(definitions)
    assert (project.variant("debian13"), project.images) == first
