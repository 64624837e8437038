# SPDX-License-Identifier: Apache-2.0
"""The folder of `packages --output`: what it must not be is said before minutes of compiling."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cellblock.build import BuildRequest
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.release import packages
from cellblock.release.packages import PackagesRequest, make_packages


class Built(Exception):
    """It came to the build."""


@pytest.fixture(autouse=True)
def no_build(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: object) -> None:
        raise Built

    monkeypatch.setattr(packages, "build_images", build)


def make(output: Path) -> None:
    make_packages(PackagesRequest(BuildRequest(), output), Events())


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        (lambda place: place.write_text("x"), "is no folder"),
        (lambda place: (place.mkdir(), (place / "passwd").write_text("x")), "as passwd"),
        (lambda place: (place / "debian/old").mkdir(parents=True), "as debian/old"),
        (lambda place: (place / "of/ours").mkdir(parents=True), "as of"),
    ],
)
def test_a_folder_of_other_things_is_refused_before_the_build(
    prepare: Callable[[Path], object], says: str, tmp_path: Path
) -> None:
    prepare(tmp_path / "x")
    with pytest.raises(CellblockError) as caught:
        make(tmp_path / "x")
    assert caught.value.message.endswith(says)
    # Whoever named /etc by mistake is not told to remove it.
    assert "rm -r" not in caught.value.hint


def test_a_folder_of_packages_is_taken_and_one_that_is_not_there(tmp_path: Path) -> None:
    for name in ("debian/a_1_amd64.deb", "debian/a_1_amd64.buildinfo", "rpm/a.rpm", "SHA256SUMS"):
        path = tmp_path / "there" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    for name in ("there", "not/there"):
        with pytest.raises(Built):
            make(tmp_path / name)


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("/proc/packages", "/proc cannot be written: No such file or directory"),
        ("/dev/null/packages", "/dev/null cannot be written: Not a directory"),
        ("oci:/srv/packages", "packages are files in a folder, and no image layout"),
    ],
)
def test_a_folder_that_cannot_be_written_is_refused_before_the_build(output: str, says: str) -> None:
    with pytest.raises(CellblockError) as caught:
        make(Path(output))
    assert caught.value.message.endswith(says)


def test_a_full_disk_is_named_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(CellblockError, match=r"debian/a\.deb: cannot be written: No space left") as caught:
        packages._write(tmp_path / "new", {"debian/a.deb": b"x"})
    assert "df -h" in caught.value.hint


def test_a_plugin_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty one, of a variable that is not set for example, is no wish for Debian's."""
    monkeypatch.setenv("CELLBLOCK_CACHE", str(tmp_path / "cache"))
    for wrong in ("", "lib/slurm", "/opt/a:/opt/b"):
        with pytest.raises(CellblockError, match="not an absolute path"):
            make_packages(PackagesRequest(BuildRequest(), tmp_path / "x", plugin_dir=wrong), Events())
    # As a shell completes it.
    assert packages._site(None, "/opt/slurm/lib/") == packages._site(None, "/opt/slurm/lib")


def test_a_folder_of_headers_that_another_run_reads_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELLBLOCK_CACHE", str(tmp_path / "cache"))
    first = packages._site(None, "/opt/slurm/lib").stat()
    assert packages._site(None, "/opt/slurm/lib").stat().st_ino == first.st_ino
