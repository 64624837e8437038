# SPDX-License-Identifier: Apache-2.0
"""The flat repository, as apt itself sees it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.lock.apt_root import AptRoot
from cellblock.lock.archives import PackageArchive
from cellblock.packages.repository import write_repository
from cellblock.packages.store import PackageStore
from tests.packages.small_archive import SmallArchive


def apt_of(folder: Path, tmp_path: Path) -> AptRoot:
    archive = PackageArchive((f"file:{folder}",), "./", (), ("trusted=yes",))
    apt = AptRoot(tmp_path / "apt", "debian", "amd64", [archive])
    apt.update()
    return apt


def test_apt_finds_exactly_the_packages_given_and_their_debs(
    small: SmallArchive, store: PackageStore, tmp_path: Path
) -> None:
    small.add("tool", "2")
    wanted = [small.add("tool", "1:1", Depends="lib (>= 1)"), small.add("lib", "1.0")]
    store.fetch(wanted, [small.archive], Events())
    folder = tmp_path / "repository"
    write_repository(wanted, store, folder)
    found = apt_of(folder, tmp_path).would_install([], "install", "tool")
    assert {(one.name, one.version) for one in found} == {("tool", "1:1"), ("lib", "1.0")}
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    subprocess.run(
        ["apt-get", "download", "-qq", "tool", "lib"],
        cwd=downloads,
        env={**os.environ, "APT_CONFIG": str(tmp_path / "apt" / "apt.conf")},
        check=True,
    )
    assert sorted(path.name for path in downloads.iterdir()) == sorted(package.deb for package in wanted)
    for package in wanted:
        assert (folder / package.deb).samefile(store.path(package))


def test_control_is_read_once_and_kept_beside_the_deb(
    small: SmallArchive, store: PackageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = small.add("a")
    store.fetch([package], [small.archive], Events())
    write_repository([package], store, tmp_path / "first")
    monkeypatch.setenv("PATH", "/nonexistent")
    write_repository([package], store, tmp_path / "second")
    assert (tmp_path / "first/Packages").read_text() == (tmp_path / "second/Packages").read_text()


def test_on_another_file_system_debs_are_copied(small: SmallArchive, store: PackageStore) -> None:
    package = small.add("a")
    store.fetch([package], [small.archive], Events())
    folder = Path("/dev/shm") / f"cellblock-test-{os.getpid()}"
    if Path("/dev/shm").stat().st_dev == store.folder.stat().st_dev:
        pytest.skip("/dev/shm is no other file system here")
    try:
        write_repository([package], store, folder)
        assert (folder / package.deb).read_bytes() == store.path(package).read_bytes()
    finally:
        subprocess.run(["rm", "-r", str(folder)], check=True)


def test_a_package_that_was_not_fetched_is_named(
    small: SmallArchive, store: PackageStore, tmp_path: Path
) -> None:
    with pytest.raises(CellblockError, match="the store has no a 1"):
        write_repository([small.add("a")], store, tmp_path / "repository")


def test_a_file_that_is_no_deb_is_named(small: SmallArchive, store: PackageStore, tmp_path: Path) -> None:
    package = replace(small.add("a"), size=4)
    store.path(package).parent.mkdir(parents=True)
    store.path(package).write_bytes(b"junk")
    with pytest.raises(CellblockError, match="dpkg-deb cannot read a 1"):
        write_repository([package], store, tmp_path / "repository")


def test_what_a_repository_holds_survives_a_trim(
    small: SmallArchive, store: PackageStore, tmp_path: Path
) -> None:
    from cellblock.store.trimming import trim

    package = small.add("a")
    store.fetch([package], [small.archive], Events())
    folder = tmp_path / "repository"
    write_repository([package], store, folder)
    trim(store.folder.parent, 0)
    assert not store.has(package)
    assert (folder / package.deb).stat().st_size == package.size
