# SPDX-License-Identifier: Apache-2.0
"""Copying files out of the trees of an image, as the image shows them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from cellblock.build.copying import copy_out, copy_sources
from cellblock.build.tidy import tidy
from cellblock.build.working_root import WorkingRoot
from cellblock.engine.recipe import CopyFrom
from cellblock.errors import CellblockError, DefinitionError
from cellblock.process import Programs

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting an overlay needs root")


@pytest.fixture
def trees(tmp_path: Path) -> list[Path]:
    """Two layers: the upper one hides what the lower one has below /out/hidden and /out/gone."""
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    for path in ("out/hidden/old", "out/kept/a", "out/gone", "host"):
        (lower / path).parent.mkdir(parents=True, exist_ok=True)
        (lower / path).write_text(path)
    (lower / "lnk").symlink_to("/etc")
    (upper / "out/kept").mkdir(parents=True)
    (upper / "out/kept/b").write_text("b")
    (upper / "out/hidden").write_text("a file now")
    if os.geteuid() == 0:
        os.mknod(upper / "out/gone", stat.S_IFCHR, os.makedev(0, 0))
    return [lower, upper]


def copied(trees: list[Path], tmp_path: Path, *files: tuple[str, str]) -> Path:
    programs = Programs()
    root = WorkingRoot(tmp_path / "work", trees, programs)
    at = tuple(f"x/image.yaml:{number}: artifacts.files" for number, _ in enumerate(files, 4))
    copy_out(root, CopyFrom("other", files, at), tmp_path / "target", programs)
    return tmp_path / "target"


@needs_root
def test_a_folder_is_copied_as_the_image_shows_it(trees: list[Path], tmp_path: Path) -> None:
    target = copied(trees, tmp_path, ("/out", "/opt/here"))
    found = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    assert found == ["opt/here/hidden", "opt/here/kept/a", "opt/here/kept/b"]
    assert (target / "opt/here/hidden").read_text() == "a file now"


@needs_root
def test_a_file_goes_to_a_path_or_into_a_folder(trees: list[Path], tmp_path: Path) -> None:
    target = copied(trees, tmp_path, ("/out/kept/b", "/x/c"), ("/out/kept/a", "/y/"))
    assert (target / "x/c").read_text() == "b"
    assert (target / "y/a").is_file()


@needs_root
@pytest.mark.parametrize("path", ["/out/gone", "/out/hidden/old", "/nowhere", "/lnk/passwd"])
def test_what_the_image_does_not_show_is_named(trees: list[Path], tmp_path: Path, path: str) -> None:
    """A link that leads out of the image leads to nothing, whatever this machine has there."""
    with pytest.raises(
        DefinitionError, match=f"^x/image.yaml:4: artifacts.files: there is no {path} in image other"
    ):
        copied(trees, tmp_path, (path, "/x"))


@needs_root
def test_one_layer_is_enough(trees: list[Path], tmp_path: Path) -> None:
    assert (copied(trees[:1], tmp_path, ("/out/gone", "/x")) / "x").is_file()


def test_sources_come_without_what_compilers_leave(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    (folder / "__pycache__").mkdir(parents=True)
    (folder / "a.c").write_text("")
    (folder / "a.c").chmod(0o600)
    copy_sources(folder, tmp_path / "place")
    assert [path.name for path in (tmp_path / "place").iterdir()] == ["a.c"]
    assert (tmp_path / "place/a.c").stat().st_mode & 0o777 == 0o644


def test_a_path_that_mount_cannot_take_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CellblockError, match="blanks, quotes, colons and commas"):
        WorkingRoot(tmp_path / "my disk", [], Programs())


def test_tidying_never_follows_a_link_out_of_the_layer(tmp_path: Path) -> None:
    outside, upper = tmp_path / "outside", tmp_path / "upper"
    outside.mkdir()
    (outside / "precious").write_text("x")
    (upper / "var/cache").mkdir(parents=True)
    (upper / "var/run").symlink_to(outside)
    (upper / "var/cache/apt").symlink_to(outside)
    (outside / "x.bin").write_text("x")
    tidy(upper, ["/var/run/*"])
    assert sorted(path.name for path in outside.iterdir()) == ["precious", "x.bin"]
