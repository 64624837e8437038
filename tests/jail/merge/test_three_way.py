# SPDX-License-Identifier: Apache-2.0
"""The three-way merge: properties of one file's, and whole trees against a model that is a few lines long."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cellblock.events import Events
from cellblock.jail.assemble import assemble
from cellblock.jail.merge.record_merge import merge_alternatives, merge_group, merge_records
from cellblock.jail.merge.three_way import content, merge
from cellblock.jail.rollback import rollback
from cellblock.jail.tree.entry import Entry
from cellblock.jail.upgrade import upgrade


def entry(kind: str, text: int, mode: int, owner: int, time: int) -> Entry:
    if kind == "l":
        return Entry(b"x", "l", 0o777, owner, 0, 1, time, target=b"%d" % text)
    if kind == "d":
        return Entry(b"x", "d", mode, owner, 0, 0, 0)
    return Entry(b"x", "f", mode, owner, 0, 1, time, digest=str(text))


entries = st.none() | st.builds(
    entry,
    st.sampled_from("ffld"),
    st.integers(0, 2),
    st.sampled_from([0o644, 0o755, 0o600]),
    st.integers(0, 2),
    st.integers(0, 2),
)


@given(entries, entries)
def test_what_users_did_not_touch_follows_the_image(base: Entry | None, new: Entry | None) -> None:
    assert content(merge(base, new, base).result) == content(new)
    if base is None or new is None or base.kind == new.kind:
        assert merge(base, new, base).result == new


@given(entries, entries)
def test_what_the_image_did_not_change_stays(base: Entry | None, tree: Entry | None) -> None:
    assert merge(base, base, tree).result == tree


@given(entries, entries, entries)
def test_users_content_is_never_lost(base: Entry | None, new: Entry | None, tree: Entry | None) -> None:
    outcome = merge(base, new, tree)
    if content(tree) != content(base):
        assert content(outcome.result) == content(tree)
        assert outcome.verdict in ("same", "kept", "conflict", "metadata")
    if outcome.verdict == "conflict":
        assert content(outcome.beside) == content(new)
    if tree and base and outcome.result and tree.kind == base.kind == outcome.result.kind:
        if tree.mode != base.mode and new is not None and new.kind == base.kind:
            assert outcome.result.mode == tree.mode
        if tree.uid != base.uid and new is not None and new.kind == base.kind:
            assert outcome.result.uid == tree.uid


@given(entries, entries, entries)
def test_merging_twice_changes_nothing_more(
    base: Entry | None, new: Entry | None, tree: Entry | None
) -> None:
    once = merge(base, new, tree).result
    assert merge(new, new, once).result == once


# Whole trees: name -> content. A name may be a file in one tree and a directory in another.
names = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/f", "a/x"])
trees = st.dictionaries(names, st.sampled_from(["1", "2", "3"]), max_size=5).map(
    lambda tree: {
        name: text for name, text in tree.items() if not any(o.startswith(name + "/") for o in tree)
    }
)


def model(base: dict[str, str], new: dict[str, str], tree: dict[str, str]) -> dict[str, str]:
    """What is in the tree afterwards, conflicts with the image's file beside it."""
    result = dict(tree)
    for name in {*base, *new}:
        old, ours, theirs = base.get(name), new.get(name), tree.get(name)
        if ours in (old, theirs):
            continue
        if theirs == old:
            result.pop(name, None)
            if ours is not None:
                result[name] = ours
        elif ours is not None and theirs is not None:
            result[f"{name}.cellblock-new"] = ours
    return result


def write(root: Path, tree: dict[str, str]) -> None:
    for name, text in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        time = int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) * 10**9
        os.utime(path, ns=(time, time))


def read(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def clashes(*trees: dict[str, str]) -> bool:
    """Whether a name is a file in one tree and a directory in another: cases with tests of their own."""
    everything = {name for tree in trees for name in tree}
    return any(other.startswith(name + "/") for name in everything for other in everything)


@pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root")
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(trees, trees, trees, trees)
def test_a_tree_is_merged_as_the_model_says_and_back(
    base: dict[str, str], new: dict[str, str], users: dict[str, str], later: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, tree in (("old", base), ("new", new)):
            (folder / name / "always").mkdir(parents=True)
            write(folder / name, tree)
        assemble(str(folder / "old"), folder / "volume", Events())
        root = folder / "volume/root"
        for path in read(root):
            (root / path).unlink()
        if clashes(base, new, users):
            users = dict(base)
        write(root, users)
        upgrade(str(folder / "new"), folder / "volume", Events())
        merged = model(base, new, users)
        if not clashes(base, new, users):
            assert read(root) == merged
            if new != base:
                rollback(folder / "volume", Events())
                assert read(root) == users
        else:
            assert read(root) == new
            shutil.rmtree(folder / "volume")


lines = st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), unique=True, max_size=4)


@given(lines, lines, lines)
def test_records_of_all_sides_are_merged_by_name(
    base: list[bytes], new: list[bytes], tree: list[bytes]
) -> None:
    merged = merge_records(base, new, tree, lambda line: line)
    for name in {*base, *new, *tree}:
        expected = name in tree if (name in new) == (name in base) else name in new
        if (name in tree) != (name in base):
            expected = name in tree
        assert (name in merged) == expected
    assert len(merged) == len(set(merged))


def test_members_of_groups_are_merged() -> None:
    base, new, tree = b"video:x:44:old\n", b"video:x:45:old,svc\n", b"video:x:44:old,ada\nada:x:1000:\n"
    assert merge_group(base, new, tree) == b"video:x:45:old,ada,svc\nada:x:1000:\n"


def test_alternatives_keep_users_choices() -> None:
    def alternatives(mode: str, *choices: tuple[str, int]) -> bytes:
        rows = "".join(f"{path}\n{priority}\n{path}.1\n" for path, priority in choices)
        return f"{mode}\n/usr/bin/editor\neditor.1\n/usr/share/man/editor.1\n\n{rows}\n".encode()

    base = alternatives("auto", ("/bin/nano", 40), ("/bin/ed", 1))
    new = alternatives("auto", ("/bin/nano", 40), ("/bin/vim", 50))
    tree = alternatives("manual", ("/bin/nano", 40), ("/bin/ed", 1), ("/bin/mine", 30))
    expected = alternatives("manual", ("/bin/nano", 40), ("/bin/mine", 30), ("/bin/vim", 50))
    assert merge_alternatives(base, new, tree) == expected
    assert merge_alternatives(base, new, base) == new
    assert merge_alternatives(base, base, tree) == tree
