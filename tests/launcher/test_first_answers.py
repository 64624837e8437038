# SPDX-License-Identifier: Apache-2.0
"""A checkout in which nothing is installed answers `--help` and `targets` at once, as others do."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.launcher import first_answers
from tests.launcher.test_launcher import copy_of_the_tree


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout without .venv."""
    return copy_of_the_tree(tmp_path_factory.mktemp("fresh"))


def build_py(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Of a path on which is nothing that could install anything.
    return subprocess.run(
        [sys.executable, str(project / "build.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/nonexistent"},
        timeout=60,
    )


def installed(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cellblock.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        (),
        ("build", "--help"),
        ("build", "worker", "--help"),
        ("jail", "--help"),
        ("jail", "assemble", "--help"),
        ("shell", "--help"),
        ("targets",),
        ("targets", "--json"),
        ("frobnicate",),
        ("bulid", "--help"),
        ("stauts", "--json"),
        ("",),
    ],
)
def test_nothing_is_installed_for_an_answer_that_is_known(fresh: Path, arguments: tuple[str, ...]) -> None:
    started = time.monotonic()
    done = build_py(fresh, *arguments)
    seconds = time.monotonic() - started
    assert (done.returncode, done.stdout, done.stderr) == (
        (expected := installed(*arguments)).returncode,
        expected.stdout,
        expected.stderr,
    )
    assert not (fresh / ".venv").exists()
    # A person takes no notice of less; it is 0.05 on a machine that has nothing else to do.
    assert seconds < 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["shell", "ls", "--help"],
        ["jail", "nope", "--help"],
        ["build", "--", "--help"],
        ["build"],
    ],
)
def test_what_is_not_known_for_certain_is_not_answered(arguments: list[str]) -> None:
    assert first_answers.answer(str(paths.PROJECT), arguments) is None


def test_an_image_and_a_variant_of_ones_own_are_listed_or_left_to_the_command(fresh: Path) -> None:
    own = fresh / "images" / "own" / "image.yaml"
    own.parent.mkdir()
    own.write_text("summary: mine - with a dash\nfrom: base\n")
    assert re.search(r"^  own +mine - with a dash$", build_py(fresh, "targets").stdout, re.MULTILINE)
    variants = fresh / first_answers.VARIANTS
    whole = variants.read_text()
    for path, text in (
        (own, "summary: 'quoted'\n"),
        (own, "summary: a\n  b\n"),
        (own, "summary: mine\nfrom: base\nfiles: {}\n"),
        (own, "summary: mine\nfrom: bse\n"),
        (variants, f"{whole}\n# mine\n"),
    ):
        before = path.read_text()
        path.write_text(text)
        assert first_answers.answer(str(fresh), ["targets"]) is None
        path.write_text(before)
    own.unlink()
    own.parent.rmdir()
