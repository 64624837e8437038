# SPDX-License-Identifier: Apache-2.0
"""YAML with the line of each key, and errors that name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock.errors import DefinitionError
from cellblock.yaml_source import nearest, read_yaml


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    return path


def test_every_key_and_item_has_its_line(tmp_path: Path) -> None:
    source = read_yaml(write(tmp_path, "a: 1\nb:\n  - x\n  - y: 2\n"))
    assert source.data == {"a": 1, "b": ["x", {"y": 2}]}
    assert source.line(("b", 1, "y")) == 4
    assert source.line(("b", 0)) == 3
    assert source.line(("b", 1, "unknown")) == 4


def test_no_yaml_names_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path, "a: 1\nb: [1, 2\n")
    with pytest.raises(DefinitionError, match=r"x\.yaml:3: .*expected"):
        read_yaml(path)


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"x\.yaml:3: key 'a' stands twice \(first on line 1\)"):
        read_yaml(write(tmp_path, "a: 1\nb: 2\na: 3\n"))


def test_an_unquoted_jinja_expression_is_explained(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"x\.yaml:1: a key must be a plain word") as raised:
        read_yaml(write(tmp_path, "a: {{ b }}\n"))
    assert "quote" in raised.value.hint


def test_missing_and_binary_files_are_definition_errors(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="cannot be read"):
        read_yaml(tmp_path / "none.yaml")
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DefinitionError, match="cannot be read"):
        read_yaml(path)


def test_nearest_suggests_the_near_miss_or_lists_all() -> None:
    assert nearest("debain13", ["debian13", "ubuntu24.04"]) == "did you mean 'debian13'?"
    assert nearest("zzz", ["b", "a"]) == "known: a, b"
