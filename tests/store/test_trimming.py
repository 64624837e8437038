# SPDX-License-Identifier: Apache-2.0
"""`cache trim` removes what was not used for longest, and leaves what others need."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cellblock.events import Events
from cellblock.launcher import up_to_date
from cellblock.packages.repository import write_repository
from cellblock.store.checking import check
from cellblock.store.inventory import items, sizes
from cellblock.store.layer_records import layer_records
from cellblock.store.trimming import trim
from tests.store.conftest import NOW, SmallCache


def total(cache: SmallCache) -> int:
    return sum(sizes(items(cache.folder), cache.layout).values())


def test_an_empty_cache_takes_nothing(cache: SmallCache) -> None:
    assert items(cache.folder) == []
    assert trim(cache.folder, 0).freed == 0
    assert check(cache.folder, Events()).damaged == ()


def test_usage_counts_each_kind_and_what_images_share_once(cache: SmallCache) -> None:
    shared, own = cache.layer("shared", 50_000), cache.layer("own", 20_000)
    cache.image("a", shared)
    cache.image("b", shared, own)
    package = cache.deb("x")
    cache.store.path(package).with_name("f" * 64 + ".part").write_bytes(b"x" * 10)
    things = items(cache.folder)
    assert sorted(thing.kind for thing in things) == ["deb", "deb", "image", "image", "tree", "tree"]
    found = sizes(things, cache.layout)
    assert found["deb"] == package.size + 10
    assert 70_000 < found["image"] < 75_000
    assert sum(thing.size for thing in things if thing.kind == "image") > 120_000
    assert 70_000 < found["tree"] < 110_000


def test_what_was_not_used_for_longest_goes_first_whatever_it_is(cache: SmallCache) -> None:
    old_deb, new_deb = cache.deb("old", 30_000, hours_ago=9), cache.deb("new", 30_000, hours_ago=1)
    cache.image("old", cache.layer("oldtree", 30_000, hours_ago=8), hours_ago=7)
    cache.image("new", cache.layer("newtree", 30_000, hours_ago=2), hours_ago=1)
    before = total(cache)
    assert trim(cache.folder, before - 1).removed == {"deb": 1}
    assert [cache.store.has(package) for package in (old_deb, new_deb)] == [False, True]
    assert trim(cache.folder, total(cache) - 1).removed == {"tree": 1}
    assert cache.trees() == {"newtree"}
    assert trim(cache.folder, total(cache) - 1).removed == {"image": 1}
    assert cache.images() == {"new"}
    left = trim(cache.folder, 10**9).left
    assert left == total(cache) < before - 90_000
    assert check(cache.folder, Events()).damaged == ()


def test_a_layer_that_another_image_needs_stays_and_so_does_its_tree(cache: SmallCache) -> None:
    shared, own = cache.layer("shared", 50_000, hours_ago=1), cache.layer("own", 20_000, hours_ago=1)
    cache.image("old", shared, own, hours_ago=9)
    cache.image("new", shared)
    trimmed = trim(cache.folder, total(cache) - 1)
    assert trimmed.removed == {"image": 1}
    assert trimmed.freed > 40_000  # its own layer, and that layer's tree
    assert cache.trees() == {"shared"}
    assert cache.layout.has(shared.digest)
    assert not cache.layout.has(own.digest)
    assert dict(layer_records(cache.folder / "layers")).keys() == {"shared"}


def test_everything_goes_when_nothing_may_stay(cache: SmallCache) -> None:
    cache.image("a", cache.layer("t"))
    package = cache.deb("x")
    write_repository([package], cache.store, cache.folder.parent / "repository")
    (cache.folder / "lists" / "debian13-1").mkdir(parents=True)
    (cache.folder / "lists" / "debian13-1" / "Packages").write_bytes(b"x" * 5000)
    cache.store.path(package).with_suffix(".control-1").write_text("half")
    assert trim(cache.folder, 0).left == 0
    left = {path.name for path in cache.folder.rglob("*") if path.is_file()}
    assert left == {"index.json", "oci-layout", "writing.lock", "index.lock", "lock"}


def test_what_a_build_with_nothing_to_do_stands_for_counts_as_used(
    cache: SmallCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELLBLOCK_CACHE", str(cache.folder))
    cache.image("asked", cache.layer("a", 30_000), hours_ago=9)
    cache.image("other", cache.layer("b", 30_000), hours_ago=1)
    assert up_to_date.used(str(cache.folder)) == {}
    up_to_date.remember("/project", ["-v", "v"], "v: all 2 images are up to date", {})
    assert up_to_date.cached_answer("/project", ["-v", "v"])
    used = {thing.name: thing.used for thing in items(cache.folder) if thing.kind == "image"}
    assert all(when > NOW for when in used.values())


HOLDER = """
import sys, time
from pathlib import Path
from cellblock.oci.layout import Layout
with Layout(Path(sys.argv[1])).writing():
    print("builds", flush=True)
    time.sleep(300)
"""


def test_trimming_waits_for_a_build_until_it_ends_or_is_killed(cache: SmallCache) -> None:
    cache.image("a", cache.layer("t"))
    build = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(cache.layout.folder)], stdout=subprocess.PIPE, text=True
    )
    assert build.stdout
    assert build.stdout.readline() == "builds\n"
    waits = threading.Event()
    trimmer = threading.Thread(target=trim, args=(cache.folder, 0, waits.set))
    trimmer.start()
    assert waits.wait(60)
    time.sleep(0.1)
    assert (cache.images(), cache.trees()) == ({"a"}, {"t"})
    build.send_signal(signal.SIGKILL)
    build.communicate()
    trimmer.join(60)
    assert (cache.images(), cache.trees()) == (set(), set())


def test_trimming_waits_for_whoever_uses_the_debs(cache: SmallCache) -> None:
    package = cache.deb("x")
    waits = threading.Event()
    trimmer = threading.Thread(target=trim, args=(cache.folder, 0, waits.set))
    with cache.store.hold():
        trimmer.start()
        assert waits.wait(60)
        assert cache.store.has(package)
    trimmer.join(60)
    assert not cache.store.has(package)


TRIMMER = """
import sys
from pathlib import Path
from cellblock.store.trimming import trim
print("begins", flush=True)
trim(Path(sys.argv[1]), 0)
"""


def test_a_killed_trim_leaves_nothing_that_is_half_there(tmp_path: Path) -> None:
    seen = set()
    # Eight moments; more where a machine was so busy that none of them hit what it does.
    for number in range(60):
        if number >= 8 and "some" in seen:
            break
        cache = SmallCache(tmp_path / str(number) / "cache")
        layers = [cache.layer(f"t{each}", 10, files=60) for each in range(12)]
        for each in range(6):
            cache.image(f"i{each}", layers[0], *layers[2 * each : 2 * each + 2])
        debs = [cache.deb(f"d{each}") for each in range(3)]
        process = subprocess.Popen(
            [sys.executable, "-c", TRIMMER, str(cache.folder)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout
        process.stdout.readline()
        time.sleep(random.Random(number).uniform(0, 0.06))
        process.kill()
        process.communicate()
        left = len(cache.images()) + len(cache.trees()) + sum(map(cache.store.has, debs))
        seen.add("all" if left == 21 else "none" if left == 0 else "some")
        # Whatever has its name is whole: each image has its layers, each tree all of its files.
        for name in cache.layout.references():
            assert all(cache.layout.has(layer.digest) for layer in cache.layout.image(name).manifest.layers)
        for tree in (cache.folder / "trees").iterdir():
            assert len(list(tree.rglob("*"))) == 61, tree
        # And the next one carries on.
        assert trim(cache.folder, 0).left == 0
        assert not list((cache.folder / "work").iterdir())
    assert "some" in seen, seen
