# SPDX-License-Identifier: Apache-2.0
"""A release is made from a clone, and leaves the checkout alone unless it is published.

The repository here has a build.py that writes down what it is asked for. Behind `--thorough` one dry run
of this very checkout builds an image.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.paths import PROJECT
from cellblock.release.releasing import ReleaseRequest, notes, release
from tests.documented import lines_for, type_line

BUILD = """\
import pathlib, sys
arguments = sys.argv[1:]
pathlib.Path(__file__).with_name("asked").open("a").write(" ".join(arguments) + "\\n")
if "--output" in arguments:
    folder = pathlib.Path(arguments[arguments.index("--output") + 1].removeprefix("oci:"))
    folder.mkdir(parents=True)
    arguments.remove("--output")
    arguments.pop()
    (folder / "index.json").write_text(" ".join(arguments))
"""
CHANGES = "# Changes\n\n## Unreleased\n\n### Added\n\n- A thing.\n\n## 0.1.0\n\nThe first version.\n"


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "cellblock").mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "cellblock"\nversion = "0.1.0"\n')
    (folder / "cellblock/__init__.py").write_text('__version__ = "0.1.0"\n')
    (folder / "CHANGELOG.md").write_text(CHANGES)
    (folder / "build.py").write_text(BUILD)
    (folder / ".gitignore").write_text("ignored\n")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")
    (folder / "ignored").write_text("a developer's own\n")
    return folder


def dry(project: Path, output: Path, version: str = "0.2.0") -> ReleaseRequest:
    return ReleaseRequest(version, output, dry_run=True, project=project)


def test_a_dry_run_makes_all_of_it_and_leaves_the_checkout_alone(project: Path, tmp_path: Path) -> None:
    before = git(project, "log", "--format=%H"), git(project, "status", "--porcelain")
    output = tmp_path / "out"
    found = release(dry(project, output), Events())
    assert (git(project, "log", "--format=%H"), git(project, "status", "--porcelain")) == before
    assert git(project, "tag") == ""
    assert found.tag == "v0.2.0"
    assert (output / "NOTES.md").read_text() == "### Added\n\n- A thing.\n"
    with tarfile.open(output / "cellblock-0.2.0.tar.gz") as archive:
        names = archive.getnames()
        changelog = archive.extractfile("cellblock-0.2.0/CHANGELOG.md")
        version = archive.extractfile("cellblock-0.2.0/cellblock/__init__.py")
        assert changelog
        assert version
        assert "## Unreleased\n\n## 0.2.0\n\n### Added\n\n- A thing.\n" in changelog.read().decode()
        assert version.read() == b'__version__ = "0.2.0"\n'
    assert "cellblock-0.2.0/ignored" not in names
    assert "--attest" in (output / "images/default/index.json").read_text()
    assert (output / "packages/index.json").exists()
    checked = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    subprocess.run(checked, cwd=output, check=True)
    assert json.loads((output / "release.json").read_text())["commit"] == found.commit


def test_twice_gives_the_same_digests(project: Path, tmp_path: Path) -> None:
    first, second = (release(dry(project, tmp_path / name), Events()) for name in ("one", "two"))
    assert first == second


def test_packages_that_cannot_be_made_are_no_release(project: Path, tmp_path: Path) -> None:
    """It was taken for a Cellblock without the command when build.py failed for whatever reason."""
    (project / "build.py").write_text(BUILD + "if arguments[0] == 'packages':\n    sys.exit('disk full')\n")
    git(project, "commit", "--quiet", "--all", "--message", "a build.py that fails")
    with pytest.raises(CellblockError, match="disk full"):
        release(dry(project, tmp_path / "out"), Events())
    assert not (tmp_path / "out/SHA256SUMS").exists()


def test_checksums_are_signed(project: Path, tmp_path: Path) -> None:
    key, public = tmp_path / "key.pem", tmp_path / "public.pem"
    make = ["openssl", "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", str(key)]
    subprocess.run(make, check=True)
    subprocess.run(["openssl", "ec", "-in", str(key), "-pubout", "-out", str(public)], check=True)
    output = tmp_path / "out"
    request = ReleaseRequest("0.2.0", output, dry_run=True, key=str(key), project=project)
    release(request, Events())
    for line in lines_for("packages.md", "test_checksums_are_signed"):
        line = line.replace("cosign.pub", str(public))
        subprocess.run(["bash", "-ec", line], cwd=output, check=True)
    assert f"--key {key} --for localhost" in (output / "images/default/index.json").read_text()


def test_a_release_pushes_images_and_takes_commit_and_tag_over(project: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    request = ReleaseRequest("0.2.0", output, repository="registry.example/slurm", project=project)
    found = release(request, Events())
    assert git(project, "rev-parse", "HEAD").strip() == found.commit
    assert git(project, "rev-parse", "v0.2.0^{commit}").strip() == found.commit
    assert "A thing." in git(project, "tag", "--list", "--format=%(contents)", "v0.2.0")
    assert (project / "pyproject.toml").read_text().endswith('version = "0.2.0"\n')
    with pytest.raises(CellblockError, match="is released already"):
        release(dry(project, tmp_path / "again"), Events())


@pytest.mark.parametrize(
    ("prepare", "version", "message"),
    [
        (lambda project: None, "0.2", "is no version"),
        (lambda project: None, "0.0.9", "is older than 0.1.0"),
        (lambda project: None, "0.1.0", "is in CHANGELOG.md already"),
        (lambda project: (project / "new").touch(), "0.2.0", "changes that are in no commit.*: new"),
        (lambda project: git(project, "tag", "v0.2.0"), "0.2.0", "is released already"),
    ],
    ids=["form", "older", "past", "changes", "tag"],
)
def test_what_cannot_be_released_is_said_before_anything_is_made(
    project: Path, tmp_path: Path, prepare: object, version: str, message: str
) -> None:
    prepare(project)  # type: ignore[operator]
    with pytest.raises(CellblockError, match=message) as failure:
        release(dry(project, tmp_path / "out", version), Events())
    assert failure.value.hint
    assert not (tmp_path / "out").exists()


def test_names_and_keys_that_are_none_are_said_before_anything_is_made(project: Path, tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "images", project / "images")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", "images")
    output = tmp_path / "out"
    for request, message in (
        (replace(dry(project, output), variants=("debian99",)), "no variant 'debian99'"),
        (replace(dry(project, output), images=("workr",)), "no image 'workr'"),
        (replace(dry(project, output), key=str(tmp_path / "no.pem")), "cannot be read"),
        (replace(dry(project, output), key=""), "--key is empty"),
    ):
        with pytest.raises(CellblockError, match=message):
            release(request, Events())
        assert not output.exists()


def test_a_release_without_a_repository_or_into_a_full_folder_is_refused(
    project: Path, tmp_path: Path
) -> None:
    with pytest.raises(CellblockError, match="no repository is named"):
        release(ReleaseRequest("0.2.0", tmp_path / "out", project=project), Events())
    with pytest.raises(CellblockError, match="is not empty"):
        release(dry(project, project), Events())


def test_notes_are_those_of_what_is_not_released() -> None:
    assert notes(CHANGES) == "### Added\n\n- A thing."
    assert notes("# Changes\n\n## Unreleased\n\n## 0.1.0\n\nold\n") == ""


@pytest.mark.skipif(
    "CELLBLOCK_RELEASE" not in os.environ or os.geteuid() != 0,
    reason="minutes, in which it installs and builds: `python3 build.py test --thorough`",
)
def test_this_checkout_can_be_released_as_the_page_says(tmp_path: Path) -> None:
    clone = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(PROJECT), str(clone)], check=True)
    (line,) = lines_for("versions.md", "test_this_checkout_can_be_released_as_the_page_says")
    type_line(line, clone)
    output = clone / "out/release"
    assert (output / "cellblock-0.2.0.tar.gz").exists()
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=output, check=True)
    assert "images/default/index.json" in (output / "SHA256SUMS").read_text()
    blobs = list((output / "images/default/blobs/sha256").iterdir())
    assert any(b"cyclonedx" in blob.read_bytes().lower() for blob in blobs if blob.stat().st_size < 1 << 20)
    assert git(clone, "tag") == ""
