# SPDX-License-Identifier: Apache-2.0
"""How-to pages typed line by line, those that need no image: a volume is made of a small folder.

tests/docs/blocks.yaml says which test types each block of each page.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from cellblock.attest.policy import load_policy
from cellblock.definition import load_images
from cellblock.paths import PROJECT
from cellblock.variants import load_variants
from tests.documented import blocks_for, lines_for, type_line
from tests.jail.deb_trees import Deb, DebTree

_SHORT = re.compile(r"\b(0123)\.\.\.|(0123 4567 89AB) \.\.\.")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """What stands for the image: a tree that is a root filesystem as far as a volume asks."""
    if os.geteuid() != 0:
        pytest.skip("a volume belongs to root")
    tree = tmp_path / "image"
    for folder in ("usr/bin", "usr/lib", "etc", "home/ada", "var/lib"):
        (tree / folder).mkdir(parents=True)
    (tree / "etc/motd").write_text("the image's\n")
    (tree / "usr/bin/tool").write_text("#!/bin/sh\n")
    (tree / "home/ada/thesis").write_text("chapter 1\n")
    return tree


@pytest.fixture
def volume(tmp_path: Path, source: Path) -> Path:
    folder = tmp_path / "jail"
    type_line(f"python3 build.py jail assemble {source} {folder}", tmp_path)
    return folder


def both(lines: list[str]) -> list[str]:
    """Each line without what stands in brackets, and with it."""
    return [
        each
        for line in lines
        for each in dict.fromkeys((re.sub(r" \[.*?\]", "", line), re.sub(r"[\[\]]", "", line)))
    ]


def test_an_upgrade_and_back(source: Path, volume: Path, tmp_path: Path) -> None:
    (source / "etc/motd").write_text("the new image's\n")
    (source / "usr/bin/other").write_text("#!/bin/sh\n")
    (volume / "root/srv").mkdir()
    (volume / "root/srv/result").write_text("a user's\n")
    moved = tmp_path / "moved"
    said = {}
    for line in both(lines_for("jail-upgrade.md", "test_an_upgrade_and_back")):
        line = line.removeprefix("python3 build.py ")
        line = line.replace("/mnt/jail", str(volume)).replace("upgrade jail ", f"upgrade {source} ")
        if "oci:/backup/jail:old" in line:
            # The very tree, at another place.
            source.rename(moved)
            line = line.replace("oci:/backup/jail:old", str(moved))
        said[line.replace(str(volume), "V").replace(str(source), "S")] = type_line(
            f"python3 build.py {line}", tmp_path
        )
        if line.endswith(f"apply plan {volume}"):
            assert (volume / "root/etc/motd").read_text() == "the new image's\n"
        if line.startswith("jail rollback"):
            assert (volume / "root/etc/motd").read_text() == "the image's\n"
            # The folder is the image's again, which repairs read.
            (source / "etc/motd").write_text("the image's\n")
            (source / "usr/bin/other").unlink()
    assert "/etc/motd" in said["jail upgrade S V --plan"]
    assert "result" in said["jail diff V --files"]
    assert "rollback " in said["jail status V"]
    assert (tmp_path / "users.tar").exists()
    assert (volume / "root/srv/result").read_text() == "a user's\n"


def test_a_tree_that_is_adopted(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a volume belongs to root")
    debs = tmp_path / "debs"
    debs.mkdir()
    image = DebTree.make(tmp_path / "image", debs, Deb("foo", "2")).root
    for name in ("tree", "lower"):
        tree = DebTree.make(tmp_path / name, debs, Deb("foo", "1"), Deb("bar", "1"))
        (tree.root / "opt/tool").write_text("the site's\n")
    for name in ("upper", "work", "merged"):
        (tmp_path / name).mkdir()
    layers = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    type_line(f"mount -t overlay overlay -o {layers} {tmp_path}/merged", tmp_path)
    (tmp_path / "merged/etc/foo.conf").write_text("the site's\n")
    said, volume = {}, tmp_path / "jail"
    try:
        for line in lines_for("jail-adopt.md", "test_a_tree_that_is_adopted"):
            line = line.replace("upgrade jail ", f"upgrade {image} ").replace("/srv/", f"{tmp_path}/")
            if line.startswith("umount"):
                volume.rename(tmp_path / "first-jail")
            said[line] = type_line(line, tmp_path)
        assert "2 packages" in said[f"python3 build.py jail adopt {tmp_path}/tree {volume}"]
        assert "foo 1 -> 2" in said[f"python3 build.py jail upgrade {image} {volume} --plan"]
        type_line(f"python3 build.py jail upgrade {image} {volume}", tmp_path)
        upgraded = DebTree(volume / "root", debs)
        assert upgraded.versions() == {"foo": "2", "bar": "1"}
        assert (volume / "root/etc/foo.conf").read_text() == "the site's\n"
        assert (volume / "root/opt/tool").read_text() == "the site's\n"
    finally:
        for name in ("merged", "jail"):
            if (tmp_path / name).is_mount():
                type_line(f"umount {tmp_path / name}", tmp_path)


def test_a_backup_and_back(volume: Path, tmp_path: Path) -> None:
    if not shutil.which("restic"):
        pytest.skip("restic is not installed")
    lost: Callable[[], None] = (volume / "root/home/ada/thesis").unlink
    said = []
    for line in both(lines_for("jail-backup.md", "test_a_backup_and_back")):
        line = re.sub(r"\bNEW-VOLUME\b", str(tmp_path / "new"), line)
        line = re.sub(r"\bVOLUME\b", str(volume), line)
        line = re.sub(r"\bREPO\b", str(tmp_path / "repository"), line)
        if "--path" in line:
            lost()
        said.append(type_line(line, tmp_path, variables={"RESTIC_PASSWORD": "of the test"}))
    assert len(said) == 5
    assert (tmp_path / "new/root/home/ada/thesis").read_text() == "chapter 1\n"
    assert (volume / "root/home/ada/thesis").read_text() == "chapter 1\n"


def test_assembling(source: Path, tmp_path: Path) -> None:
    first, second = both(lines_for("jail-assemble.md", "test_assembling"))
    said = type_line(first.replace("SOURCE", str(source)).replace("VOLUME", "one"), tmp_path)
    assert "one" in said
    for shard in range(2):
        line = second.replace("SOURCE", str(source)).replace("VOLUME", "two")
        type_line(line.replace("--jobs N", "--jobs 2").replace("I/N", f"{shard}/2"), tmp_path)
    for name in ("one", "two"):
        assert (tmp_path / name / "root/etc/motd").read_text() == "the image's\n"


def test_directories_of_tickets(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("directories of others")
    for line in lines_for("jail-plan.md", "test_directories_of_tickets"):
        type_line(line.replace("/mnt/jail", str(tmp_path)), tmp_path)
    made = {
        path.name: (path.stat().st_uid, path.stat().st_mode & 0o777) for path in tmp_path.glob("no-jail/*")
    }
    assert made == {"0": (0, 0o700), "1000": (1000, 0o700)}


def test_what_builds_keep(tmp_path: Path) -> None:
    for line in lines_for("locking.md", "test_what_builds_keep"):
        type_line(line, tmp_path, variables={"CELLBLOCK_CACHE": str(tmp_path / "cache")})


def test_a_containerfile(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("the context has a root filesystem, which root alone can make")
    printed, _ = (type_line(line, tmp_path) for line in lines_for("containerfile.md", "test_a_containerfile"))
    assert " AS worker" in printed
    assert (tmp_path / "DIR/Containerfile").read_text() == printed


def test_jobs_kept_in_git(tmp_path: Path) -> None:
    write, check = lines_for("ci.md", "test_jobs_kept_in_git")
    type_line(write.replace(" ...", ""), tmp_path)
    assert "jobs" in yaml.safe_load((tmp_path / ".github/workflows/images.yml").read_text())
    type_line(check.replace(" ...", ""), tmp_path)


def test_jobs_written_by_a_job(tmp_path: Path) -> None:
    (block,) = blocks_for("ci.md", "test_jobs_written_by_a_job")
    pipeline = yaml.safe_load(block.text)
    type_line(pipeline["plan"]["script"], tmp_path)
    (written,) = pipeline["plan"]["artifacts"]["paths"]
    (child,) = pipeline["images"]["trigger"]["include"]
    assert child["artifact"] == written
    assert "stages" in yaml.safe_load((tmp_path / written).read_text())


@pytest.mark.parametrize("page", ["compiling.md", "pyxis.md"])
def test_what_make_is_asked_for(page: str) -> None:
    for line in lines_for(page, "test_what_make_is_asked_for"):
        # What it would do; that it does is what the images and tests of C are made with.
        assert "cc" in type_line(line.replace("make ", "make --dry-run --always-make ", 1), PROJECT)


def test_the_policy_of_an_audit(tmp_path: Path) -> None:
    (block,) = blocks_for("attest.md", "test_the_policy_of_an_audit")
    (tmp_path / "policy.yaml").write_text(block.text)
    assert load_policy(tmp_path / "policy.yaml")


def test_a_definition_and_variants(tmp_path: Path) -> None:
    image, *variants = blocks_for("definitions.md", "test_a_definition_and_variants")
    images = tmp_path / "images"
    shutil.copytree(PROJECT / "images", images)
    (images / "worker/image.yaml").write_text(image.text)
    assert load_images(images)["worker"].fields.entrypoint[0] == "tini"
    for block in variants:
        whole = _SHORT.sub(lambda found: "0a12" * 16 if found[1] else "0123 4567 89AB" + "0" * 28, block.text)
        declared = yaml.safe_load((images / "variants.yaml").read_text())
        declared["variants"] |= yaml.safe_load(whole)["variants"]
        (images / "variants.yaml").write_text(json.dumps(declared))
    assert {"debian13-slurm25.05", "debian13-cuda12.8"} <= set(load_variants(images / "variants.yaml"))
