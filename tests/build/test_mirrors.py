# SPDX-License-Identifier: Apache-2.0
"""Which mirror a build takes, and how a mirror may be named."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.build import mirrors
from cellblock.errors import UsageError
from cellblock.lock.archives import PackageArchive
from cellblock.lock.model import Lock
from cellblock.variants import load_variants

VARIANTS = load_variants(paths.PROJECT / "images" / "variants.yaml")
NOBLE = VARIANTS["ubuntu24.04"]
TRIXIE = VARIANTS["debian13"]


def host(monkeypatch: pytest.MonkeyPatch, id_: str, codename: str) -> None:
    monkeypatch.setattr(mirrors, "host_release", lambda: {"ID": id_, "VERSION_CODENAME": codename})


def test_a_url_becomes_a_line_with_the_variants_suite_and_components() -> None:
    archive = mirrors.archive(NOBLE, ("http://mirror.test/ubuntu",))
    assert archive.lines == ("deb http://mirror.test/ubuntu noble main universe",)


def test_a_whole_line_is_taken_as_it_is_and_a_local_archive_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "dists").mkdir()
    line = f"deb [trusted=yes] file://{tmp_path} noble main"
    archive = mirrors.archive(NOBLE, (line,))
    assert archive.lines == (line,)
    assert archive.local == (tmp_path,)


def test_a_local_archive_that_is_not_there_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder 'dists'"):
        mirrors.archive(NOBLE, (f"file://{tmp_path}",))


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError, match="neither a URL"):
        mirrors.archive(NOBLE, ("mirror",))


def test_the_host_s_mirror_serves_other_suites_of_its_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(monkeypatch, "debian", "bookworm")
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text(
        "Types: deb\n# comment: x\nURIs: http://in.test/debian\nSuites: bookworm bookworm-updates\n"
        "Components: main\n\nTypes: deb\nURIs: http://in.test/sec\nSuites: bookworm-security\n"
    )
    assert mirrors.archive(TRIXIE, apt=tmp_path).lines == (
        "deb http://in.test/debian trixie main",
        "deb http://in.test/debian trixie-updates main",
        "deb http://in.test/sec trixie-security main",
    )
    assert mirrors.archive(VARIANTS["debian14"], apt=tmp_path).lines == (
        "deb http://in.test/debian forky main",
    )
    assert mirrors.archive(NOBLE, apt=tmp_path).lines == ()


def test_one_line_sources_are_read_too_and_other_lists_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(monkeypatch, "debian", "bookworm")
    (tmp_path / "sources.list").write_text(
        "# deb http://no.test/debian bookworm main\ndeb [arch=amd64] http://old.test/debian bookworm main\n"
    )
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "x.list").write_text("deb http://vendor.test/apt stable main\n")
    assert mirrors.archive(TRIXIE, apt=tmp_path).lines[0] == "deb http://old.test/debian trixie main"


def test_without_a_mirror_of_the_host_the_tool_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host(monkeypatch, "debian", "bookworm")
    assert mirrors.archive(TRIXIE, apt=tmp_path).lines == ()


def test_urls_are_mirrors_of_one_archive_and_lines_are_archives_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "Packages").touch()
    flat = f"deb [trusted=yes] file:{tmp_path} ./"
    found = mirrors.package_archives(TRIXIE, ("http://a.test/debian/", flat, "http://b.test/debian"))
    assert found == (
        PackageArchive(("http://a.test/debian", "http://b.test/debian"), "trixie", ("main",)),
        PackageArchive((f"file:{tmp_path}",), "./", (), ("trusted=yes",)),
    )


def test_a_flat_archive_without_an_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no file 'Packages'"):
        mirrors.package_archives(TRIXIE, (f"deb [trusted=yes] file:{tmp_path} ./",))


def test_a_snapshot_takes_its_place_in_urls_and_lines() -> None:
    date = "20261101T000000Z"
    line = "deb http://s.test/security/{snapshot} trixie-security main"
    found = mirrors.package_archives(TRIXIE, ("http://s.test/debian/{snapshot}", line), date)
    assert [archive.line for archive in found] == [
        f"deb http://s.test/debian/{date} trixie main",
        f"deb http://s.test/security/{date} trixie-security main",
    ]


def test_a_snapshot_without_a_place_for_it_and_a_place_without_a_snapshot_are_refused() -> None:
    with pytest.raises(UsageError, match="no mirror keeps earlier states") as raised:
        mirrors.package_archives(TRIXIE, ("http://a.test/debian",), "20261101T000000Z")
    assert "{snapshot}" in raised.value.hint
    with pytest.raises(UsageError, match="has a place for a date") as raised:
        mirrors.package_archives(TRIXIE, ("http://s.test/debian/{snapshot}",))
    assert "--snapshot" in raised.value.hint


def test_the_tool_s_default_is_spelled_out_for_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """By mmdebstrap itself, for a suite that this machine's apt does not use."""
    if not shutil.which("mmdebstrap") or os.geteuid() != 0:
        pytest.skip("mmdebstrap, run by root, is what knows the default mirrors")
    monkeypatch.setattr(mirrors, "host_release", dict)
    suites = [archive.suite for archive in mirrors.package_archives(NOBLE)]
    assert suites == ["noble", "noble-updates", "noble-security"]
    assert all(archive.components == ("main", "universe") for archive in mirrors.package_archives(NOBLE))


def test_a_lock_is_fetched_from_this_machine_s_mirrors_first() -> None:
    def archive(suite: str, *uris: str) -> PackageArchive:
        return PackageArchive(uris, suite, ("main",) if suite != "./" else ())

    locked = (archive("trixie", "http://far.test/d"), archive("./", "file:/theirs"))
    here = (archive("trixie", "http://near.test/d", "http://far.test/d"), archive("./", "file:/mine"))
    lock = Lock("debian13", "amd64", "", locked, {}, {})
    assert [one.uris for one in mirrors.mirrors_of_lock(lock, here)] == [
        ("http://near.test/d", "http://far.test/d"),
        ("file:/theirs",),
    ]
