# SPDX-License-Identifier: Apache-2.0
"""A newcomer types what docs/getting-started.md says, line by line."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cellblock.cluster import stop
from cellblock.docs import terminal
from cellblock.events import Events
from cellblock.paths import PROJECT
from tests.integration.conftest import default_variant
from tests.integration.state_folder import state_folder
from tests.ports import free_port

pytestmark = pytest.mark.integration

PAGE = PROJECT / "docs" / "getting-started.md"
README = PROJECT / "README.md"
_LAUNCH = "python3 build.py "
_NAME = f"first{os.getpid()}"
# Seconds for one command; the first one may build all images.
_TIMEOUT_S = 1500


def plain(text: str) -> str:
    """The words of a recording or of an output: no colours, and a sign for each number that differs."""
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    text = re.sub(r"SHA256:[A-Za-z0-9+/]{43}", "SHA256:#", text)
    text = re.sub(r"\b[0-9a-f]{8}\b", "#", text)
    return "\n".join(re.sub(r"\d+(\.\d+)?", "#", line).rstrip() for line in text.split("\n"))


@dataclass
class Typed:
    """A line typed to this machine's shell, and those typed to the shell that it opens."""

    line: str
    inside: list[str] = field(default_factory=list)


def typed_lines(page: Path) -> list[Typed]:
    """What the page tells to type, in its order: the lines of its indented blocks."""
    found: list[Typed] = []
    for line in re.findall(r"^    (\S.*)$", page.read_text(), re.MULTILINE):
        if line.startswith(_LAUNCH):
            found.append(Typed(line))
        else:
            found[-1].inside.append(line)
    return found


def of_this_test(line: str, port: int) -> str:
    """The same for a cluster of the test's own, beside others."""
    target = line.removeprefix(_LAUNCH).split()[0]
    options = f"--name {_NAME}"
    if target == "up":
        options += f" --ssh-port {port} --variant {default_variant()}"
    return line.replace(f"{_LAUNCH}{target}", f"{_LAUNCH}{target} {options}", 1)


@pytest.fixture
def newcomer() -> Iterator[int]:
    """A state folder of its own, and a port; the cluster goes in the end, whatever happened."""
    if os.geteuid() != 0:
        pytest.skip("a cluster needs root")
    with state_folder():
        try:
            yield free_port()
        finally:
            stop(_NAME, Events())


def test_the_page_is_read_as_it_is_meant() -> None:
    lines = typed_lines(PAGE)
    assert [one.line.removeprefix(_LAUNCH).split()[0] for one in lines] == [
        *("up", "shell", "shell", "shell", "shell", "down", "up", "status", "down"),
    ]
    assert [len(one.inside) for one in lines] == [0, 4, 3, 6, 0, 0, 0, 0, 0]


def test_the_readme_types_nothing_else_for_a_cluster() -> None:
    typed = {one.line.partition(" #")[0].strip() for one in typed_lines(PAGE)}
    shown = re.findall(
        r"^    (python3 build\.py (?:up|shell|status|down)\b[^|#\n]*)#", README.read_text(), re.M
    )
    assert len(shown) == 5
    assert {line.strip() for line in shown} <= typed


def test_what_the_page_says_works_in_its_order(newcomer: int) -> None:
    said = [(one.line, type_it(one, newcomer)) for one in typed_lines(PAGE)]
    outputs = dict(said)
    assert outputs["python3 build.py shell --user cellblock"].count("worker-") == 3
    assert "hello from worker-" in outputs["python3 build.py shell --user cellblock"]
    assert outputs["python3 build.py shell"].count("tree v") == 2
    assert "main" in outputs["python3 build.py shell --admin"]
    up = said[0][1]
    assert_is_the_picture(up)
    assert "python3 build.py shell --user cellblock" in up
    assert f"cluster {_NAME} is stopped; its jail is deleted" in said[-1][1]


def assert_is_the_picture(printed: str) -> None:
    """What `up` says in the end is what the picture in the README shows, but for numbers."""
    shown = plain(terminal.RECORDING.read_text())
    without_name = printed.replace(f" --name {_NAME}", "").replace(
        f"clusters/{_NAME}/", "clusters/cellblock/"
    )
    state = os.environ["CELLBLOCK_STATE"]
    end = plain(terminal.align(without_name.replace(f"{state}/clusters", "/var/lib/cellblock/clusters")))
    begin = "A job over all workers"
    again = "the picture is old: cellblock/docs/terminal.py says how it is made"
    assert end[end.index(begin) :].strip() == shown[shown.index(begin) :].strip(), again


def type_it(typed: Typed, port: int) -> str:
    """Type a line, and what follows into the shell that it opened; returns what was printed."""
    # -e: the first line that fails ends the shell. /dev/null: srun reads what is typed, here the next lines.
    script = "".join(f"{{ {line}\n}} </dev/null\n" for line in typed.inside)
    done = subprocess.run(
        ["sh", "-c", of_this_test(typed.line, port)],
        cwd=PROJECT,
        input=f"set -e\n{script}" if script else "",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
    assert done.returncode == 0, f"{typed.line}\n{done.stdout}"
    return done.stdout
