# SPDX-License-Identifier: Apache-2.0
"""A build with nothing to do is known without importing Cellblock, and any doubt leads to a whole build."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cellblock.launcher import up_to_date

ARGS = ["worker", "-v", "debian13"]


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file and a folder in it, about which `ARGS` said "done"."""
    monkeypatch.setenv("CELLBLOCK_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "inputs"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/file").write_text("x")
    up_to_date.remember("/project", ARGS, "done", up_to_date.states_of([str(folder), "/nonexistent"]))
    return folder


def test_nothing_changed_says_what_was_cached_answer(inputs: Path) -> None:
    assert up_to_date.cached_answer("/project", ARGS) == "done"


@pytest.mark.parametrize("args", [[], ["worker"], [*ARGS, "--locked"]])
def test_another_command_line_says_nothing(inputs: Path, args: list[str]) -> None:
    assert up_to_date.cached_answer("/project", args) is None


def test_another_checkout_says_nothing(inputs: Path) -> None:
    assert up_to_date.cached_answer("/other", ARGS) is None


def test_another_environment_says_nothing(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    assert up_to_date.cached_answer("/project", ARGS) is None


def test_a_change_that_keeps_size_and_time_is_noticed(inputs: Path) -> None:
    file = inputs / "deep/file"
    status = file.stat()
    file.write_text("y")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert up_to_date.cached_answer("/project", ARGS) is None


def test_a_mode_a_new_file_and_one_that_went_are_noticed(inputs: Path) -> None:
    (inputs / "deep/file").chmod(0o755)
    assert up_to_date.cached_answer("/project", ARGS) is None
    up_to_date.remember("/project", ARGS, "done", up_to_date.states_of([str(inputs)]))
    (inputs / "new").write_text("")
    assert up_to_date.cached_answer("/project", ARGS) is None
    up_to_date.remember("/project", ARGS, "done", up_to_date.states_of([str(inputs)]))
    (inputs / "new").unlink()
    assert up_to_date.cached_answer("/project", ARGS) is None


def test_a_damaged_note_says_nothing(inputs: Path) -> None:
    for note in (inputs.parent / "cache/unchanged").iterdir():
        note.write_text(note.read_text()[:-3])
    assert up_to_date.cached_answer("/project", ARGS) is None


def test_pythons_cache_does_not_count(inputs: Path) -> None:
    (inputs / "__pycache__").mkdir()
    assert up_to_date.cached_answer("/project", ARGS) == "done"


@pytest.mark.parametrize(
    ("args", "simple"),
    [
        (["worker", "--locked", "-v", "debian13", "--log", "plain"], True),
        (["--json"], False),
        (["--update"], False),
        (["--log", "json"], False),
        (["--output", "oci:/x"], False),
    ],
)
def test_only_plain_builds_are_answered_at_once(args: list[str], simple: bool) -> None:
    assert up_to_date.is_simple(args) is simple
