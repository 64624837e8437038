# SPDX-License-Identifier: Apache-2.0
"""A first installation takes minutes: it says what it does, in a log and in a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cellblock.launcher import install as launcher_install
from cellblock.launcher import progress
from cellblock.paths import PROJECT

# Prints a line that says what it does and others, and stays until its file is gone.
_PROGRAM = """
echo 'Unpacking one (1.0)'; echo 'WARNING: no'; echo ' --- 3 %'
while [ -e "$1" ]; do sleep 0.05; done
echo the end; exit $2
"""


def command(file: Path, status: int = 0, program: str = _PROGRAM) -> list[str]:
    return ["sh", "-c", program, "sh", str(file), str(status)]


class Reader:
    """Standard error of the launcher, which removes a file as soon as something is said."""

    def __init__(self, file: Path) -> None:
        self.file, self.text = file, ""

    def write(self, text: str) -> None:
        self.text += text
        if "Unpacking" in text:
            self.file.unlink(missing_ok=True)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    (tmp_path / "file").touch()
    made = Reader(tmp_path / "file")
    monkeypatch.setattr(sys, "argv", ["build.py", "up"])
    monkeypatch.setattr(progress, "_EVERY_S", 0.3)
    return made


def run(reader: Reader, status: int = 0, program: str = _PROGRAM) -> None:
    """Run the program. Not in the fixture: pytest puts a stream of its own there for each phase of a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", reader)
        launcher_install._run(command(reader.file, status, program), "try")


def test_a_log_has_a_line_every_few_seconds(reader: Reader) -> None:
    run(reader)
    assert reader.text.endswith("\n")
    assert all(
        re.fullmatch(r"build\.py:   (Unpacking one \(1\.0\)|at work) \(\d+ s\)", line)
        for line in reader.text.splitlines()
    )
    assert "build.py:   Unpacking one (1.0) (" in reader.text


def test_a_log_has_no_line_of_a_hundred_packages(reader: Reader) -> None:
    run(reader, program=_PROGRAM.replace("one (1.0)", "one, " * 100))
    assert re.search(r"^build\.py:   Unpacking one, .*\.\.\. \(\d+ s\)$", reader.text, re.MULTILINE)
    assert max(map(len, reader.text.splitlines())) < 120


def test_a_log_of_json_has_lines_of_json(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["build.py", "up", "--log", "json"])
    run(reader)
    assert '"event": "message"' in reader.text
    assert '"text": "  Unpacking one (1.0) (' in reader.text


def test_a_failure_has_all_that_was_printed(reader: Reader) -> None:
    with pytest.raises(launcher_install.InstallError, match=r"(?s)status 3.*Unpacking one.*the end"):
        run(reader, 3)


def test_what_ends_soon_says_nothing(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_EVERY_S", 60.0)
    reader.file.unlink()
    run(reader)
    assert reader.text == ""


def test_a_terminal_has_one_line_that_is_gone_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    ours, theirs = pty.openpty()
    code = f"from cellblock.launcher import install; install._run({command(file)!r}, 'try')"
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "30"}
    environment.pop("CI", None)
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=PROJECT, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        said = b""
        while b"Unpack" not in said:
            said += os.read(ours, 4096)
        file.unlink()
        try:
            while chunk := os.read(ours, 4096):
                said += chunk
        except OSError:
            pass  # EIO: the other end is closed
    os.close(ours)
    assert process.returncode == 0
    assert b"\n" not in said
    assert said.endswith(b"\r\x1b[K")
    drawn = said.decode().split("\r\x1b[K")
    assert any(re.fullmatch(r"build\.py:   Unpack.*\.\.\. \(\d+ s\)", line) for line in drawn), drawn
    assert all(len(line) < 30 for line in drawn)


def test_a_long_line_is_cut_before_the_seconds() -> None:
    assert progress._cut("build.py:   one two three (12 s)", 24) == "build.py:   on... (12 s)"
    assert progress._cut("build.py:   one (12 s)", 24) == "build.py:   one (12 s)"
