# SPDX-License-Identifier: Apache-2.0
"""The manifest: what is written is what is read, and damage is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cellblock.errors import CellblockError
from cellblock.jail.tree import manifest
from cellblock.jail.tree.entry import Entry, order
from cellblock.jail.tree.manifest_diff import check
from cellblock.jail.tree.manifest_index import opened, side_by_side
from tests.jail.manifests import read_manifest

ENTRIES = [
    Entry(b"", "d", 0o755, 0, 0, 0, 17 * 10**17),
    Entry(b"bin", "l", 0o777, 0, 0, 7, 1, target=b"usr/bin"),
    Entry(b"dev null", "c", 0o666, 0, 0, 0, -5, device=(1, 3)),
    Entry(b"ping", "f", 0o4755, 0, 0, 2, 3, xattrs=((b"user.a,b=c", b"\0\xff"),), digest="ab" * 32),
    Entry(b"ping2", "h", 0o4755, 0, 0, 2, 3, target=b"ping"),
]


def test_the_text_of_a_manifest(tmp_path: Path) -> None:
    manifest.write(tmp_path / "m", ENTRIES)
    lines = (tmp_path / "m").read_text().splitlines()
    assert lines[:-1] == [
        "cellblock-manifest 1",
        "d 755 0 0 0 1700000000000000000 - - .",
        "l 777 0 0 7 1 usr/bin - bin",
        "c 666 0 0 0 -5 1:3 - dev%20null",
        f"f 4755 0 0 2 3 {'ab' * 32} user.a%2Cb%3Dc=AP8= ping",
        "h 4755 0 0 2 3 ping - ping2",
    ]
    assert lines[-1].startswith("end 5 ")
    assert read_manifest(tmp_path / "m") == ENTRIES


names = st.binary(min_size=1, max_size=30).map(lambda name: name.replace(b"\0", b"0").replace(b"/", b"-"))
paths = st.lists(names, min_size=1, max_size=4).map(b"/".join)
kept = st.tuples(names, st.binary(max_size=20))


@given(
    path=paths.filter(lambda path: path != b"."),
    target=paths,
    mode=st.integers(0, 0o7777),
    owner=st.integers(0, 2**32 - 1),
    time=st.integers(-(2**62), 2**62),
    xattrs=st.lists(kept, max_size=3).map(tuple),
)
def test_every_entry_survives_its_line(
    path: bytes, target: bytes, mode: int, owner: int, time: int, xattrs: tuple[tuple[bytes, bytes], ...]
) -> None:
    entry = Entry(path, "l", mode, owner, owner, len(target), time, target=target, xattrs=xattrs)
    text = manifest.line(entry)
    assert text.count(b"\n") == 1
    assert manifest.parse(text) == entry


@given(st.lists(paths, max_size=8))
def test_the_order_is_that_of_a_sorted_walk(some: list[bytes]) -> None:
    assert sorted(some, key=order) == sorted(some, key=lambda path: path.split(b"/"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: text.index(b"end")], "damaged manifest: the `end` line is missing"),
        (lambda text: text.replace(b"755", b"777", 1), "damaged manifest: its SHA-256 does not match"),
        (lambda text: b"what\n" + text, "damaged manifest: expected 'cellblock-manifest 1'"),
        (lambda text: b"", "damaged manifest: expected 'cellblock-manifest 1'"),
    ],
)
def test_damage_is_named(tmp_path: Path, damage: object, message: str) -> None:
    path = tmp_path / "m"
    manifest.write(path, ENTRIES[:3])
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(CellblockError) as caught:
        check(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_a_line_that_is_no_entry_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected 9 fields, found 8"):
        manifest.parse(b"l 777 0 0 7 1 usr/bin bin\n")


few = st.lists(
    st.sampled_from([b"a", b"b", b"a b", b"a%", b"a-", b"a.b", b"\xff", b"%41", b"A", b"~"]),
    min_size=1, max_size=3,
).map(b"/".join)  # fmt: skip
trees = st.dictionaries(few, st.integers(0, 2), max_size=12)


def written(path: Path, tree: dict[bytes, int]) -> list[Entry]:
    """A manifest of files whose size is their number, and of a hard link to the first of them."""
    entries = [Entry(name, "f", 0o644, 0, 0, size, 0, digest="0" * 64) for name, size in tree.items()]
    if entries:
        first = min(tree, key=order)
        entries.append(Entry(b"~link", "h", 0o644, 0, 0, tree[first], 0, target=first))
    found = sorted([Entry(b"", "d", 0o755, 0, 0, 0, 0), *entries], key=lambda entry: order(entry.path))
    path.unlink(missing_ok=True)
    manifest.write(path, found)
    return found


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trees, trees)
def test_two_manifests_are_compared_by_path(
    tmp_path: Path, old: dict[bytes, int], new: dict[bytes, int]
) -> None:
    sides = [written(tmp_path / "old", old), written(tmp_path / "new", new)]
    before, after = ({manifest.line(entry): entry.path for entry in side} for side in sides)
    expected = {
        path for line, path in [*before.items(), *after.items()] if (line in before) != (line in after)
    }
    found = {}
    for one, other in side_by_side(tmp_path / "old", tmp_path / "new"):
        paths = {manifest.parse(line).path for line in (one, other) if line is not None}
        (path,) = paths
        found[path] = (one, other)
    assert {path for path, (one, other) in found.items() if one != other} == expected
    assert list(found) == sorted(found, key=order)
    for path, (one, other) in found.items():
        assert (one in before, other in after) == (one is not None, other is not None), path
    with opened(tmp_path / "new") as index:
        for entry in sides[1]:
            assert index.entry(entry.path) == entry
            below = [
                one for one in sides[1] if one.path == entry.path or one.path.startswith(entry.path + b"/")
            ]
            assert not entry.path or list(index.below(entry.path)) == below
        for name in set(old) - set(new):
            assert index.entry(name) is None
