# SPDX-License-Identifier: Apache-2.0
"""Locks as files: what is written is read again, and what was edited is refused by line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cellblock.errors import DefinitionError
from cellblock.lock.archives import PackageArchive
from cellblock.lock.file import lock_path, read_lock, write_lock
from cellblock.lock.model import Lock, LockedImage, LockedPackage
from cellblock.variants import Architecture, Variant

PACKAGE = LockedPackage(
    name="libc6",
    version="1:2.41-12+deb13u1",
    architecture="amd64",
    sha256="ab" * 32,
    size=2_800_000,
    installed_size=13_000_000,
    filename="pool/main/g/glibc/libc6_2.41-12+deb13u1_amd64.deb",
    archive=1,
    origin="Debian trixie-security/main",
    security=True,
    images=("base", "worker"),
    depends=("gcc-14-base | gcc-15-base",),
)
# Names that YAML would take for a number, a truth value, nothing.
ODD = [replace(PACKAGE, name=name, images=("worker",), security=False) for name in ("2048", "on", "null")]


@pytest.fixture
def lock() -> Lock:
    packages = {package.name: package for package in sorted([PACKAGE, *ODD], key=lambda one: one.name)}
    return Lock(
        variant="debian13",
        architecture="amd64",
        date="2026-11-20T02:11:10Z",
        archives=(
            PackageArchive(("http://a.test/debian", "http://b.test/debian"), "trixie", ("main", "contrib")),
            PackageArchive(("file:/opt/own",), "./", (), ("trusted=yes",)),
        ),
        images={
            "base": LockedImage("base", None, ("passwd",), ("libc6",)),
            "worker": LockedImage("worker", "base", ("2048", "on"), ("2048", "libc6", "null", "on")),
        },
        packages=packages,
        snapshot="20261101T000000Z",
        tarballs={"http://a.test/slurm.tar.bz2": "f" * 64},
    )


@pytest.fixture
def path(lock: Lock, tmp_path: Path) -> Path:
    write_lock(lock, tmp_path / "locks" / "debian13.lock.yaml")
    return tmp_path / "locks" / "debian13.lock.yaml"


def test_what_is_written_is_read_again(lock: Lock, path: Path) -> None:
    assert read_lock(path) == lock


def test_a_lock_with_the_empty_section_of_earlier_versions_is_read(lock: Lock, path: Path) -> None:
    edit(path, "tarballs:\n", "base_images: {}\ntarballs:\n")
    assert read_lock(path) == lock


def test_a_lock_is_yaml_to_everybody_else(lock: Lock, path: Path) -> None:
    data = yaml.safe_load(path.read_text())
    assert list(data["packages"]) == sorted(lock.packages)
    assert data["packages"]["libc6"]["images"] == ["base", "worker"]
    assert data["archives"][0]["mirrors"] == ["http://b.test/debian"]


def test_the_same_lock_gives_the_same_bytes_one_package_a_line(lock: Lock, path: Path) -> None:
    before = path.read_bytes()
    write_lock(lock, path)
    assert path.read_bytes() == before
    assert sum(line.startswith('  "') and "version" in line for line in before.decode().splitlines()) == 4
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def edit(path: Path, old: str, new: str) -> int:
    """Replace `old`; the line on which it stood."""
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    return text[: text.index(old)].count("\n") + 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            '"libc6": {"version": "1:2.41-12+',
            '"libc6": {"version": "1:2.41-13+',
            "packages.libc6: was edited",
        ),
        ('"on": {"version"', '"off": {"version"', "packages.off: was edited"),
        ('"base": {"packages": ["passwd"]}', '"base": {"packages": []}', "images: was edited"),
        ("http://a.test/debian trixie", "http://evil.test/debian trixie", "archives: was edited"),
        ("f" * 64, "e" * 64, "tarballs: was edited"),
        ('"amd64"\ndate', '"arm64"\ndate', "the lines before `archives` were edited"),
        ('"from": "base"', '"from": "bose"', "images.worker.from: there is no image 'bose'"),
    ],
)
def test_an_edit_is_refused_with_its_place(path: Path, old: str, new: str, said: str) -> None:
    line = edit(path, old, new)
    with pytest.raises(DefinitionError) as raised:
        read_lock(path)
    assert said in raised.value.message
    assert "build.py lock" in raised.value.hint
    if said.startswith("packages"):
        assert f"{path}:{line}: {said}" in raised.value.message


def test_a_line_that_was_taken_out_is_noticed(path: Path) -> None:
    path.write_text(re.sub(r'  "on": .*\n', "", path.read_text()))
    with pytest.raises(DefinitionError, match="packages: a line was added, removed or renamed"):
        read_lock(path)


def test_a_package_that_stands_twice_is_named_with_both_lines(path: Path) -> None:
    """As a merge of two branches can leave it."""
    text = path.read_text()
    line = next(line for line in text.splitlines() if line.startswith('  "on"'))
    path.write_text(text.replace(line, f"{line}\n{line}"))
    number = text.splitlines().index(line) + 1
    with pytest.raises(DefinitionError, match=f":{number + 1}: key 'on' stands twice .*line {number}"):
        read_lock(path)


def test_a_value_of_another_kind_is_named_with_line_and_key(path: Path) -> None:
    text = path.read_text()
    number = next(i for i, line in enumerate(text.splitlines(), 1) if line.startswith('  "libc6"'))
    path.write_text(
        text.replace('"size": 2800000', '"size": "big"', 1).replace('"sha256": "ab', '"sha256": "zz')
    )
    with pytest.raises(DefinitionError) as raised:
        read_lock(path)
    assert f"{path}:{number}: packages.libc6.sha256: " in raised.value.message


def test_an_unknown_key_is_named_with_the_near_miss(path: Path) -> None:
    line = edit(path, "\ntarballs:\n", "\ntarball:\n") + 1
    with pytest.raises(DefinitionError, match=f":{line}: tarball: unknown key; did you mean 'tarballs'"):
        read_lock(path)


def test_a_lock_of_another_format_is_refused(path: Path) -> None:
    line = edit(path, "format: 1", "format: 99")
    with pytest.raises(DefinitionError, match=f":{line}: format: this is a lock of format 99"):
        read_lock(path)


@pytest.mark.parametrize("text", ["", "- a\n", "format: [1\n", "\x00\n"])
def test_what_is_no_lock_is_refused(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(DefinitionError, match=re.escape(str(path))):
        read_lock(path)


def test_a_lock_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="there is no such lock") as raised:
        read_lock(tmp_path / "x.lock.yaml")
    assert "build.py lock" in raised.value.hint


def test_each_architecture_has_a_lock_of_its_own(variant: Variant, tmp_path: Path) -> None:
    assert lock_path(tmp_path, variant) == tmp_path / "debian13.lock.yaml"
    arm = replace(variant, arch=Architecture("arm64", "aarch64-linux-gnu"))
    assert lock_path(tmp_path, arm) == tmp_path / "debian13-arm64.lock.yaml"


def test_a_lock_without_anything_optional_is_read_again(lock: Lock, path: Path) -> None:
    bare = replace(lock, snapshot=None, tarballs={}, packages={}, images={}, archives=())
    write_lock(bare, path)
    assert read_lock(path) == bare
