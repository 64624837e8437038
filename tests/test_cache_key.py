# SPDX-License-Identifier: Apache-2.0
"""Cache keys: what counts of files, and how a change is named."""

from __future__ import annotations

from pathlib import Path

from cellblock.cache_key import Key, digest_of, digest_of_tree


def test_a_key_names_the_input_that_changed() -> None:
    before = Key({"a": "1", "b": "2", "gone": "3"})
    after = Key({"a": "1", "b": "9", "new": "4"})
    assert after.changed_since(before.inputs) == ["b", "gone", "new"]
    assert before.digest != after.digest
    assert Key({"b": "2", "gone": "3", "a": "1"}).digest == before.digest


def test_contents_names_kinds_and_the_executable_bit_count_but_not_the_rest(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    digest = digest_of_tree(tmp_path)
    (tmp_path / "f").chmod(0o600)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "g").write_text("y")
    assert digest_of_tree(tmp_path) == digest
    seen = {digest}
    (tmp_path / "f").chmod(0o755)
    seen.add(digest_of_tree(tmp_path))
    (tmp_path / "f").write_text("z")
    seen.add(digest_of_tree(tmp_path))
    (tmp_path / "f").rename(tmp_path / "h")
    seen.add(digest_of_tree(tmp_path))
    (tmp_path / "h").unlink()
    (tmp_path / "h").symlink_to("z")
    seen.add(digest_of_tree(tmp_path))
    assert len(seen) == 5


def test_only_the_named_suffixes_count(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    digest = digest_of_tree(tmp_path, (".py",))
    (tmp_path / "a.txt").write_text("x")
    assert digest_of_tree(tmp_path, (".py",)) == digest


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest_of({"a": 1, "b": [2]}) == digest_of({"b": [2], "a": 1})
