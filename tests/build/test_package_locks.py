# SPDX-License-Identifier: Apache-2.0
"""Locking the images of a small project from a small archive, through the command line as well."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cellblock import paths
from cellblock.errors import DefinitionError
from cellblock.lock.file import read_lock
from tests.packages.small_archive import SmallArchive

VARIANTS = """\
distributions:
  debian13: {id: debian, version: "13", codename: trixie, slurm: "24.11", stable: true}
variants:
  debian13: {distribution: debian13}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of two images and one that is only compiled, its cache and its archive."""
    folder = tmp_path / "project"
    images = {
        "base": "summary: b\npackages: [tool]\n",
        "worker": "summary: w\nfrom: base\npackages:\n  - \"{{ 'slurm' if slurm.release == '24.11' }}\"\n"
        "  - \"{{ 'cuda' if cuda }}\"\n",
        "plugins": "summary: p\nbuild: {in: base, sources: {src: /src}, run: [make], output: /out}\n",
    }
    for name, text in images.items():
        (folder / "images" / name).mkdir(parents=True)
        (folder / "images" / name / "image.yaml").write_text(text)
    (folder / "images" / "variants.yaml").write_text(VARIANTS)
    monkeypatch.setattr(paths, "PROJECT", folder)
    monkeypatch.setenv("CELLBLOCK_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def small(tmp_path: Path) -> SmallArchive:
    archive = SmallArchive(tmp_path / "archive")
    for name in ("apt", "tool", "slurm"):
        archive.add(name)
    return archive.publish()


@pytest.fixture
def build_py(project: Path, small: SmallArchive) -> Callable[..., Result]:
    from cellblock.cli.app import app

    def run(*arguments: str) -> Result:
        mirror = ("--mirror", small.archive.line) if arguments[0] == "lock" else ()
        return CliRunner().invoke(app, [*arguments, *mirror])

    return run


def test_all_images_of_a_variant_are_locked_in_one_go(build_py: Callable[..., Result], project: Path) -> None:
    done = build_py("lock", "debian13")
    assert done.exit_code == 0
    assert "3 packages in 2 images" in done.stdout
    lock = read_lock(project / "locks" / "debian13.lock.yaml")
    assert {name: image.packages for name, image in lock.images.items()} == {
        "base": ("apt", "tool"),
        "worker": ("apt", "slurm", "tool"),
    }


def test_a_lock_that_is_current_is_left_as_it_is_to_the_byte(
    build_py: Callable[..., Result], project: Path
) -> None:
    build_py("lock", "debian13")
    path = project / "locks" / "debian13.lock.yaml"
    os.utime(path, (1, 1))
    assert "is current" in build_py("lock", "debian13").stdout
    assert path.stat().st_mtime == 1
    assert build_py("lock", "debian13", "--check").exit_code == 0


def test_check_fails_without_a_lock_and_with_one_that_is_behind_and_writes_nothing(
    build_py: Callable[..., Result], project: Path, small: SmallArchive
) -> None:
    done = build_py("lock", "debian13", "--check")
    assert done.exit_code == 1
    assert "does not exist yet" in done.stdout
    assert not (project / "locks").exists()
    build_py("lock", "debian13")
    before = (project / "locks" / "debian13.lock.yaml").read_bytes()
    small.add("tool", "2")
    small.publish()
    done = build_py("lock", "debian13", "--check")
    assert done.exit_code == 1
    assert "is not current: 1 upgraded" in done.stdout
    image = project / "images" / "base" / "image.yaml"
    image.write_text("summary: b\npackages: [tool, slurm]\n")
    assert build_py("lock", "debian13", "--check").exit_code == 1
    assert (project / "locks" / "debian13.lock.yaml").read_bytes() == before


def test_diff_shows_an_upgrade_as_a_person_reads_it(
    build_py: Callable[..., Result], project: Path, small: SmallArchive
) -> None:
    build_py("lock", "debian13")
    small.add("tool", "2", Depends="lib")
    small.add("lib", "7")
    small.label = "Test-Security"
    small.publish()
    worker = project / "images" / "worker" / "image.yaml"
    worker.write_text("summary: w\nfrom: base\npackages: [extra]\n")
    small.add("extra", "3")
    small.publish()
    done = build_py("lock", "debian13", "--diff")
    assert done.exit_code == 0
    lines = [line.split("  ") for line in done.stdout.splitlines()[1:]]
    shown = [" | ".join(part.strip() for part in line if part.strip()) for line in lines]
    assert shown == [
        "image worker asks for extra",
        "image worker no longer asks for slurm",
        "extra | added 3 | worker",
        "lib | added 7 | all images",
        "slurm | removed (was 1) | worker",
        "security | tool | 1 -> 2 | all images",
    ]
    assert read_lock(project / "locks" / "debian13.lock.yaml").packages["tool"].version == "1"


def test_json_says_the_same(build_py: Callable[..., Result], small: SmallArchive) -> None:
    assert json.loads(build_py("lock", "debian13", "--json").stdout)["written"] is True
    small.add("tool", "2")
    small.publish()
    said = json.loads(build_py("lock", "debian13", "--diff", "--json").stdout)
    assert (said["current"], said["written"]) == (False, False)
    assert said["changes"] == [
        {
            "kind": "upgraded",
            "package": "tool",
            "old": "1",
            "new": "2",
            "security": False,
            "images": ["base", "worker"],
        }
    ]


def test_a_lock_that_was_edited_is_named_by_check_and_replaced_by_lock(
    build_py: Callable[..., Result], project: Path
) -> None:
    build_py("lock", "debian13")
    path = project / "locks" / "debian13.lock.yaml"
    path.write_text(path.read_text().replace('"tool": {"version": "1"', '"tool": {"version": "0"'))
    done = build_py("lock", "debian13", "--check")
    assert done.exit_code == 1
    assert "packages.tool: was edited" in done.stdout
    done = build_py("lock", "debian13")
    assert "wrote" in done.stdout
    assert "packages.tool: was edited" in done.stdout
    assert read_lock(path).packages["tool"].version == "1"


def test_what_the_archive_lacks_is_named_with_file_and_line(
    build_py: Callable[..., Result], project: Path
) -> None:
    image = project / "images" / "worker" / "image.yaml"
    image.write_text("summary: w\nfrom: base\npackages: [slrum]\n")
    done = build_py("lock", "debian13")
    assert isinstance(done.exception, DefinitionError)
    assert f"{image}:3: image worker: " in done.exception.message
    assert "Unable to locate package slrum" in done.exception.message


def test_a_lock_of_a_snapshot_is_checked_against_that_snapshot(
    build_py: Callable[..., Result], project: Path, small: SmallArchive, tmp_path: Path
) -> None:
    from cellblock.cli.app import app

    def lock(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["lock", "debian13", *arguments])

    # Past its date, as a snapshot's index always is.
    small.publish(valid_days=-30)
    (tmp_path / "20261101T000000Z").symlink_to(small.folder)
    mirror = f"deb [trusted=yes] file:{tmp_path}/{{snapshot}} trixie main"
    assert lock("--mirror", mirror, "--snapshot", "20261101T000000Z").exit_code == 0
    path = project / "locks" / "debian13.lock.yaml"
    assert read_lock(path).snapshot == "20261101T000000Z"
    assert lock("--check").exit_code == 0


def test_the_cache_is_shown_trimmed_and_checked(build_py: Callable[..., Result], small: SmallArchive) -> None:
    from cellblock.events import Events
    from cellblock.packages.store import PackageStore

    store = PackageStore(paths.packages())
    assert ": 0 B" in build_py("cache").stdout
    package = small.add("extra", size=5000)
    store.fetch([package], [small.archive], Events())
    said = json.loads(build_py("cache", "show", "--json").stdout)
    assert (said["kinds"]["deb"]["count"], said["bytes"]) == (1, package.size)
    assert "1 packages" in build_py("cache").stdout
    assert "1 packages, blobs and trees are whole" in build_py("cache", "check").stdout
    store.path(package).write_bytes(b"x" * package.size)
    done = build_py("cache", "check")
    assert done.exit_code == 1
    assert f"{package.sha256}.deb: has SHA-256" in done.stdout
    store.fetch([package], [small.archive], Events())
    assert "removed nothing" in build_py("cache", "trim", "--max-size", "1G").stdout
    # Bytes, which nobody means.
    assert build_py("cache", "trim", "--max-size", "5").exit_code != 0
    assert store.has(package)
    assert "removed 1 packages" in build_py("cache", "trim", "--max-size", "1k").stdout
    assert not store.has(package)
    assert build_py("cache", "trim", "--max-size", "much").exit_code != 0
