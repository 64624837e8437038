# SPDX-License-Identifier: Apache-2.0
"""Fetching into the store: from a small HTTP server that fails in the ways that mirrors do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cellblock.errors import CellblockError
from cellblock.events import Event, Events, Message, Progress
from cellblock.packages import store as store_module
from cellblock.packages.store import FetchFailed, PackageStore
from cellblock.process import Interrupted
from tests.memory_disk import memory_disk
from tests.packages.mirror import Mirror
from tests.packages.small_archive import SmallArchive

MEGABYTE = 1 << 20


def files(store: PackageStore) -> list[str]:
    return sorted(path.name for path in store.folder.glob("sha256/*/*"))


def content(store: PackageStore, small: SmallArchive, *packages: object) -> bool:
    """Whether the store holds the archive's bytes of each package."""
    return all(
        store.path(package).read_bytes() == (small.folder / package.filename).read_bytes()  # type: ignore
        for package in packages
    )


def wait_for(what: str, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"still waiting: {what}"
        time.sleep(0.01)


@pytest.mark.parametrize("scheme", ["http", "file", "copy"])
def test_each_deb_is_fetched_once_and_kept_under_its_hash(
    scheme: str, small: SmallArchive, store: PackageStore, mirror: Mirror
) -> None:
    packages = [small.add("a", size=MEGABYTE), small.add("b"), small.add("c", "1:2~rc+1")]
    uri = mirror.uri if scheme == "http" else f"{scheme}:{small.folder}"
    for _ in range(2):
        store.fetch([*packages, packages[0]], [small.at(uri)], Events())
    assert content(store, small, *packages)
    assert files(store) == sorted(f"{package.sha256}.deb" for package in packages)
    assert max(mirror.requests.values(), default=1) == 1


def test_progress_ends_at_the_total(small: SmallArchive, store: PackageStore, mirror: Mirror) -> None:
    packages = [small.add("a", size=MEGABYTE), small.add("b", size=10)]
    seen: list[Event] = []
    events = Events()
    events.subscribe(seen.append)
    store.fetch(packages, [small.at(mirror.uri)], events)
    last = [event for event in seen if isinstance(event, Progress)][-1]
    assert last.done == last.total == sum(package.size for package in packages)


def test_a_broken_connection_is_resumed_where_it_ended(
    small: SmallArchive, store: PackageStore, mirror: Mirror, impatient: None
) -> None:
    package = small.add("a", size=MEGABYTE)
    mirror.breaks_after = MEGABYTE // 4
    store.fetch([package], [small.at(mirror.uri)], Events())
    assert content(store, small, package)
    assert mirror.requests[f"/{package.filename}"] == 5
    wait_for("the mirror to count", lambda: mirror.sent == package.size)


def test_what_one_run_left_is_what_the_next_begins_with(
    small: SmallArchive, store: PackageStore, mirror: Mirror
) -> None:
    package = small.add("a", size=MEGABYTE)
    part = store.path(package).with_suffix(".part")
    part.parent.mkdir(parents=True)
    part.write_bytes((small.folder / package.filename).read_bytes()[: MEGABYTE // 2])
    store.fetch([package], [small.at(mirror.uri)], Events())
    assert content(store, small, package)
    wait_for("the mirror to count", lambda: mirror.sent == package.size - MEGABYTE // 2)


@pytest.mark.parametrize("left", [MEGABYTE // 2, 2 * MEGABYTE], ids=["beginning", "too much"])
def test_a_rest_that_does_not_fit_is_thrown_away(
    left: int, small: SmallArchive, store: PackageStore, mirror: Mirror
) -> None:
    package = small.add("a", size=MEGABYTE)
    part = store.path(package).with_suffix(".part")
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * left)
    store.fetch([package], [small.at(mirror.uri)], Events())
    assert content(store, small, package)


def test_a_mirror_without_ranges_starts_again(
    small: SmallArchive, store: PackageStore, mirror: Mirror
) -> None:
    package = small.add("a", size=MEGABYTE)
    mirror.ranges = False
    part = store.path(package).with_suffix(".part")
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 1000)
    store.fetch([package], [small.at(mirror.uri)], Events())
    assert content(store, small, package)


def test_a_mirror_that_lies_is_named_with_both_hashes_and_nothing_is_stored(
    small: SmallArchive, store: PackageStore, mirror: Mirror
) -> None:
    good, bad = small.add("good"), small.add("bad", "2.0", size=1000)
    mirror.lies_about = "bad"
    with pytest.raises(FetchFailed) as raised:
        store.fetch([good, bad], [small.at(mirror.uri)], Events())
    message = raised.value.message
    assert "cannot fetch bad 2.0" in message
    assert f"{mirror.uri}/{bad.filename}: the file's SHA-256 is " in message
    assert f"expected {bad.sha256}" in message
    assert store.has(good)
    assert not store.path(bad).exists()
    mirror.lies_about = ""
    store.fetch([good, bad], [small.at(mirror.uri)], Events())
    assert content(store, small, good, bad)


def test_the_next_mirror_is_asked_before_giving_up_on_one_that_lies(
    small: SmallArchive, store: PackageStore, mirror: Mirror
) -> None:
    package = small.add("a", size=1000)
    mirror.lies_about = "a_1"
    store.fetch([package], [small.at(mirror.uri, f"file:{small.folder}")], Events())
    assert content(store, small, package)
    assert mirror.requests[f"/{package.filename}"] == 1


def test_a_file_that_is_too_short_is_refused(
    small: SmallArchive, store: PackageStore, mirror: Mirror, impatient: None
) -> None:
    package = small.add("a", size=1000)
    deb = small.folder / package.filename
    deb.write_bytes(deb.read_bytes()[:-500])
    with pytest.raises(FetchFailed, match=f"expected {package.size}"):
        store.fetch([package], [small.at(mirror.uri)], Events())
    assert not store.path(package).exists()


def test_a_package_that_every_mirror_has_dropped_is_named_with_what_to_do(
    small: SmallArchive, store: PackageStore, mirror: Mirror
) -> None:
    package = small.add("gone", "4.2")
    (small.folder / package.filename).unlink()
    with pytest.raises(FetchFailed, match=r"the mirror no longer has gone 4\.2") as raised:
        store.fetch([package], [small.at(mirror.uri, f"file:{small.folder}")], Events())
    assert f"{mirror.uri}/{package.filename}: HTTP 404" in raised.value.message
    assert "build.py lock" in raised.value.hint


def test_a_busy_mirror_is_asked_again(
    small: SmallArchive, store: PackageStore, mirror: Mirror, impatient: None
) -> None:
    package = small.add("a")
    mirror.answers = [503, 429]
    store.fetch([package], [small.at(mirror.uri)], Events())
    assert content(store, small, package)


def test_a_mirror_that_is_down_costs_its_tries_once_and_the_next_one_serves(
    small: SmallArchive, store: PackageStore, mirror: Mirror, impatient: None
) -> None:
    packages = [small.add(f"p{number}") for number in range(40)]
    store.fetch(packages, [small.at("http://127.0.0.1:9", mirror.uri)], Events())
    assert content(store, small, *packages)


def test_a_mirror_that_vanishes_is_named_and_the_next_run_carries_on(
    small: SmallArchive, store: PackageStore, impatient: None
) -> None:
    packages = [small.add(f"p{number}", size=MEGABYTE) for number in range(3)]
    first = Mirror(small.folder)
    first.breaks_after = MEGABYTE // 2
    address = first.uri

    def vanish() -> None:
        wait_for("the first bytes", lambda: first.sent)
        first.vanish()
        first.chunk_s = 0

    # No file is whole before it has vanished: what was sent until then is a part of the first half.
    first.chunk_s = 0.3
    vanishing = threading.Thread(target=vanish)
    vanishing.start()
    with pytest.raises(FetchFailed) as raised:
        store.fetch(packages, [small.at(address)], Events())
    vanishing.join()
    assert address in raised.value.message
    assert "--mirror" in raised.value.hint
    second = Mirror(small.folder)
    left = sum(path.stat().st_size for path in store.folder.glob("sha256/*/*.part"))
    whole = sum(package.size for package in packages if store.has(package))
    store.fetch(packages, [small.at(second.uri)], Events())
    assert content(store, small, *packages)
    rest = sum(package.size for package in packages) - left - whole
    wait_for("the mirror to count", lambda: second.sent == rest)
    second.vanish()


def test_many_failures_are_counted_not_listed(
    small: SmallArchive, store: PackageStore, mirror: Mirror
) -> None:
    packages = [small.add(f"p{number}") for number in range(9)]
    for package in packages:
        (small.folder / package.filename).unlink()
    with pytest.raises(FetchFailed, match="and 4 more packages"):
        store.fetch(packages, [small.at(mirror.uri)], Events())


CHILD = """
import pickle, sys
from pathlib import Path
from cellblock.events import Events
from cellblock.packages.store import PackageStore
packages, archives, folder = pickle.loads(sys.stdin.buffer.read())
PackageStore(folder).fetch(packages, archives, Events())
"""


def fetch_in_child(store: PackageStore, packages: object, archives: object) -> subprocess.Popen[bytes]:
    import pickle

    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdin
    child.stdin.write(pickle.dumps((packages, archives, store.folder)))
    child.stdin.close()
    child.stdin = None
    return child


def test_two_processes_never_fetch_one_deb_twice(
    small: SmallArchive, store: PackageStore, mirror: Mirror
) -> None:
    packages = [small.add(f"p{number}", size=200_000) for number in range(12)]
    mirror.chunk_s = 0.01
    children = [fetch_in_child(store, packages, [small.at(mirror.uri)]) for _ in range(2)]
    for child in children:
        _, errors = child.communicate(timeout=60)
        assert child.returncode == 0, errors.decode()
    assert content(store, small, *packages)
    assert set(mirror.requests.values()) == {1}
    assert files(store) == sorted(f"{package.sha256}.deb" for package in packages)


def test_whoever_waits_for_another_process_says_so(
    small: SmallArchive, store: PackageStore, mirror: Mirror
) -> None:
    package = small.add("slow", size=MEGABYTE)
    mirror.chunk_s = 0.5
    child = fetch_in_child(store, [package], [small.at(mirror.uri)])
    wait_for("the child to fetch", lambda: mirror.sent)
    said: list[str] = []

    def note(event: Event) -> None:
        if isinstance(event, Message):
            said.append(event.text)
            mirror.chunk_s = 0  # slow until then, however long this process takes to get there

    events = Events()
    events.subscribe(note)
    store.fetch([package], [small.at(mirror.uri)], events)
    child.communicate(timeout=60)
    assert "another process fetches slow; waiting for it" in said
    assert mirror.requests[f"/{package.filename}"] == 1


@pytest.mark.parametrize("after", [0, 100_000, 1_000_000, 2_500_000])
def test_a_killed_fetch_leaves_a_store_that_is_right_and_the_next_one_goes_on(
    after: int, small: SmallArchive, store: PackageStore, mirror: Mirror
) -> None:
    packages = [small.add(f"p{number}", size=MEGABYTE // 2) for number in range(6)]
    mirror.chunk_s = 0.002
    child = fetch_in_child(store, packages, [small.at(mirror.uri)])
    wait_for("some bytes", lambda: mirror.sent > after)
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=60)
    whole = [package for package in packages if store.path(package).exists()]
    assert content(store, small, *whole)
    mirror.chunk_s = 0
    store.fetch(packages, [small.at(mirror.uri)], Events())
    assert content(store, small, *packages)
    assert files(store) == sorted(f"{package.sha256}.deb" for package in packages)


def test_ctrl_c_ends_a_fetch_from_a_mirror_that_hangs(
    small: SmallArchive, store: PackageStore, mirror: Mirror
) -> None:
    package = small.add("a", size=MEGABYTE)
    mirror.chunk_s = 5

    def press() -> None:
        wait_for("the request", lambda: mirror.requests)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    started = time.monotonic()
    with pytest.raises(Interrupted, match="fetched so far are kept"):
        store.fetch([package], [small.at(mirror.uri)], Events())
    # Far from the half minute after which a silent mirror is given up, and from a test of speed.
    assert time.monotonic() - started < 20
    assert not store.has(package)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with memory_disk(tmp_path / "small", "size=3m") as folder:
        yield folder


def test_a_disk_that_is_too_small_is_named_before_anything_is_fetched(
    small: SmallArchive, small_disk: Path, mirror: Mirror
) -> None:
    package = small.add("big", size=4 * MEGABYTE)
    with pytest.raises(CellblockError, match="1 packages need 4 MiB, and 3 MiB are free") as raised:
        PackageStore(small_disk).fetch([package], [small.at(mirror.uri)], Events())
    assert "cache trim" in raised.value.hint
    assert not mirror.requests


def test_a_disk_that_fills_up_is_named_and_the_next_run_carries_on(
    small: SmallArchive, small_disk: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PackageStore(small_disk / "debs")
    packages = [small.add(f"p{number}", size=MEGABYTE) for number in range(2)]
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (2 * MEGABYTE))
    # Others filled it after the space had been found enough.
    monkeypatch.setattr(PackageStore, "_check_space", lambda *_: None)
    with pytest.raises(CellblockError, match="no space left on the disk") as raised:
        store.fetch(packages, [small.at(mirror.uri)], Events())
    assert str(store.folder) in raised.value.message
    assert content(store, small, *(package for package in packages if store.path(package).exists()))
    ballast.unlink()
    store.fetch(packages, [small.at(mirror.uri)], Events())
    assert content(store, small, *packages)


def test_the_proxy_of_the_environment_is_used_and_named_when_it_fails(
    small: SmallArchive,
    store: PackageStore,
    mirror: Mirror,
    monkeypatch: pytest.MonkeyPatch,
    impatient: None,
) -> None:
    package, other = small.add("a"), small.add("b")
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", mirror.uri)
    store.fetch([package], [small.at("http://mirror.invalid")], Events())
    assert content(store, small, package)
    assert mirror.requests[f"http://mirror.invalid/{package.filename}"] == 1
    monkeypatch.setenv("http_proxy", "http://user:secret@127.0.0.1:9")
    with pytest.raises(FetchFailed, match=r"through the proxy 127\.0\.0\.1:9") as raised:
        store.fetch([other], [small.at("http://mirror.invalid")], Events())
    assert "secret" not in str(raised.value)


def test_the_number_of_connections_is_bounded(
    small: SmallArchive, store: PackageStore, mirror: Mirror
) -> None:
    packages = [small.add(f"p{number}", size=30_000) for number in range(20)]
    mirror.chunk_s = 0.01
    at_once: list[int] = []
    fetch = store_module._Fetch._from_mirrors
    running = threading.Semaphore(store_module._THREADS)

    def counted(*arguments: object) -> object:
        assert running.acquire(blocking=False), "more at once than allowed"
        at_once.append(1)
        try:
            return fetch(*arguments)  # type: ignore[arg-type]
        finally:
            running.release()

    store_module._Fetch._from_mirrors = counted  # type: ignore
    try:
        store.fetch(packages, [small.at(mirror.uri)], Events())
    finally:
        store_module._Fetch._from_mirrors = fetch  # type: ignore[method-assign]
    assert len(at_once) == 20
