# SPDX-License-Identifier: Apache-2.0
"""`cache check` finds what the disk has damaged, and removes that alone."""

from __future__ import annotations

from cellblock.events import Events
from cellblock.packages.unpacked_deb import Unpacker
from cellblock.store.checking import check
from cellblock.store.layer_records import layer_records
from tests.store.conftest import SmallCache, damage


def test_what_is_whole_is_counted(cache: SmallCache) -> None:
    cache.image("a", cache.layer("t"))
    cache.deb("x")
    checked = check(cache.folder, Events())
    # A deb, a tree, and three blobs: manifest, configuration, layer.
    assert (checked.whole, checked.damaged) == (5, ())


def test_a_damaged_deb_is_removed_and_fetched_again(cache: SmallCache) -> None:
    bad, good = cache.deb("bad"), cache.deb("good")
    damage(cache.store.path(bad))
    (found,) = check(cache.folder, Events()).damaged
    assert (found.kind, found.name) == ("deb", f"{bad.sha256}.deb")
    assert [cache.store.has(package) for package in (bad, good)] == [False, True]
    cache.fetch(bad)
    assert check(cache.folder, Events()).damaged == ()


def test_what_was_made_of_a_deb_goes_alone(cache: SmallCache) -> None:
    package = cache.deb("x")
    deb = cache.store.path(package)
    Unpacker(()).unpack(deb)
    assert check(cache.folder, Events()).damaged == ()
    damage(deb.with_suffix(".files"))
    (found,) = check(cache.folder, Events()).damaged
    assert (found.kind, found.name) == ("frame", f"{package.sha256}.files")
    assert cache.store.has(package)
    assert Unpacker(()).read(deb) is None


def test_with_a_damaged_layer_go_the_images_that_need_it(cache: SmallCache) -> None:
    shared, own = cache.layer("shared"), cache.layer("own")
    cache.image("needs", shared, own)
    cache.image("other", shared)
    damage(cache.layout.blob(own.digest))
    found = check(cache.folder, Events()).damaged
    assert [(each.kind, each.name.split(":")[0]) for each in found] == [
        ("blob", own.digest.removeprefix("sha256:")),
        ("image", "needs"),
        ("image", "needs"),
    ]
    assert cache.images() == {"other"}
    assert cache.trees() == dict(layer_records(cache.folder / "layers")).keys() == {"shared"}
    assert check(cache.folder, Events()).damaged == ()


def test_a_tree_that_is_not_its_layer_is_removed_and_the_image_stays(cache: SmallCache) -> None:
    cache.image("a", cache.layer("t"), cache.layer("u"))
    path = cache.folder / "trees" / "t" / "t" / "0"
    damage(path)
    (found,) = check(cache.folder, Events()).damaged
    assert (found.kind, found.name, found.found) == ("tree", "t", "t/0: Contents differ")
    assert cache.trees() == {"u"}
    assert cache.images() == {"a"}


def test_a_file_that_lost_its_data_or_is_gone_is_found_and_times_are_not_compared(cache: SmallCache) -> None:
    cache.image("a", cache.layer("empty"), cache.layer("gone"), cache.layer("touched"))
    (cache.folder / "trees/empty/empty/0").write_bytes(b"")
    (cache.folder / "trees/gone/gone/0").unlink()
    (cache.folder / "trees/touched/touched/0").touch()
    found = {each.name: each.found for each in check(cache.folder, Events()).damaged}
    assert found.keys() == {"empty", "gone"}
    assert "Size differs" in found["empty"]
    assert "No such file" in found["gone"]
