# SPDX-License-Identifier: Apache-2.0
"""Shell lines that run in a working root: order, failures, environment, and what they leave."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.build.working_root import FailedInRoot, WorkingRoot
from cellblock.process import ProgramFailed, Programs

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting an overlay needs root")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[WorkingRoot]:
    """This machine's own root below an upper folder."""
    # An upper folder may not be a part of the tree below it.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(tmp_path)], check=True)
    yield WorkingRoot(tmp_path / "work", [Path("/")], Programs())
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_lines_run_one_after_the_other_in_one_shell(root: WorkingRoot) -> None:
    assert root.run(["x=$((6 * 7))", "echo $x > /answer", "cat /answer"]).output == "42"
    assert (root.upper / "answer").read_text() == "42\n"


def test_the_first_failure_ends_the_script_with_its_status(root: WorkingRoot) -> None:
    with pytest.raises(ProgramFailed) as raised:
        root.run(["echo before", "(exit 9)", "touch /after"])
    assert raised.value.finished.status == 9
    assert raised.value.finished.tail[-1] == "before"
    assert not (root.upper / "after").exists()
    with pytest.raises(ProgramFailed, match="unset_variable"):
        root.run(["echo $unset_variable"])


@pytest.mark.parametrize(
    ("line", "number"),
    [("(exit 9)", 1), ("for x in a b; do false || exit 3; done", 1), ("echo 'not closed", 1), ("exit 2", 1)],
)
def test_of_numbered_lines_the_one_that_fails_is_known(root: WorkingRoot, line: str, number: int) -> None:
    with pytest.raises(FailedInRoot) as raised:
        root.run(["echo first", line, "echo last"], numbered=True)
    assert raised.value.line == number
    with pytest.raises(FailedInRoot) as raised:
        root.run(["exec false"], numbered=True)
    # Nothing could be said any more; what an earlier run said is not about this one.
    assert raised.value.line is None


def test_a_script_may_be_longer_than_an_argument(root: WorkingRoot) -> None:
    words = "x" * 200_000  # MAX_ARG_STRLEN is 131,072
    lines = ["cat > /long <<EOF", words, "EOF", *(f"echo {number} >> /lines" for number in range(10_000))]
    root.run(lines)
    assert (root.upper / "long").read_text() == f"{words}\n"
    assert (root.upper / "lines").read_text().splitlines() == [str(number) for number in range(10_000)]


def test_a_script_sees_nothing_of_how_it_came(root: WorkingRoot) -> None:
    seen = root.run(["echo $0", "ls -A /tmp", "cat", "ls /proc/self/fd"]).output.split()
    # ls has its own of the folder as 3; standard input is empty.
    assert seen == ["sh", "0", "1", "2", "3"]
