from __future__ import annotations

import os
import threading

from cellblock.events import Events
from cellblock.lock.model import LockedPackage
from cellblock.packages.repository import write_repository
from cellblock.packages.store import PackageStore
from cellblock.packages.upkeep import check, trim, usage
from tests.packages.small_archive import SmallArchive


def fetched(small: SmallArchive, store: PackageStore, *names: str) -> list[LockedPackage]:
    """Packages of that name, of 100 kB each, the first being the least recently used."""
    packages = [small.add(name, size=100_000) for name in names]
    store.fetch(packages, [small.archive], Events())
    for hours, package in enumerate(reversed(packages), 1):
        used = 1_700_000_000 - hours * 3600
        os.utime(store.path(package), (used, used))
    return packages


def test_an_empty_store_takes_nothing(store: PackageStore) -> None:
    used = usage(store)
    assert (used.debs, used.debs_size, used.parts, used.oldest) == (0, 0, 0, None)
    assert trim(store, 0).files == 0
    assert check(store, Events()) == []


def test_usage_counts_what_is_whole_and_what_is_not(small: SmallArchive, store: PackageStore) -> None:
    packages = fetched(small, store, "a", "b")
    store.path(packages[0]).with_name("f" * 64 + ".part").write_bytes(b"x" * 10)
    used = usage(store)
    assert (used.debs, used.debs_size) == (2, packages[0].size + packages[1].size)
    assert (used.parts, used.parts_size) == (1, 10)


def test_trimming_removes_what_was_not_used_for_longest(small: SmallArchive, store: PackageStore) -> None:
    a, b, c = fetched(small, store, "a", "b", "c")
    store.fetch([a], [small.archive], Events())  # used again
    trimmed = trim(store, a.size + c.size)
    assert (trimmed.files, trimmed.freed, trimmed.left) == (1, b.size, a.size + c.size)
    assert [store.has(package) for package in (a, b, c)] == [True, False, True]


def test_a_trimmed_package_leaves_nothing_behind(small: SmallArchive, store: PackageStore) -> None:
    (a,) = fetched(small, store, "a")
    write_repository([a], store, small.folder / "repository")
    assert list(store.folder.glob("sha256/*/*.control"))
    store.path(a).with_suffix(".control-1").write_text("half")
    trim(store, 0)
    assert list(store.folder.glob("sha256/*/*")) == []


def test_trimming_waits_for_whoever_uses_the_store(small: SmallArchive, store: PackageStore) -> None:
    (a,) = fetched(small, store, "a")
    waits = threading.Event()
    trimmer = threading.Thread(target=trim, args=(store, 0, waits.set))
    with store.hold():
        trimmer.start()
        assert waits.wait(30)
        assert store.has(a)
    trimmer.join(30)
    assert not store.has(a)


def test_checking_finds_and_removes_what_the_disk_has_damaged(
    small: SmallArchive, store: PackageStore
) -> None:
    a, b = fetched(small, store, "a", "b")
    data = bytearray(store.path(a).read_bytes())
    data[-1] ^= 1
    store.path(a).write_bytes(data)
    damaged = check(store, Events())
    assert [one.name for one in damaged] == [f"{a.sha256}.deb"]
    assert [store.has(package) for package in (a, b)] == [False, True]
    store.fetch([a], [small.archive], Events())
    assert check(store, Events()) == []
