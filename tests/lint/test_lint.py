# SPDX-License-Identifier: Apache-2.0
"""Linters and the type checker are tests: one command proves everything.

Each shows the tool's own output. A tool that is not installed skips its test, and says so.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from licence_lines import MARK

from cellblock import paths


def files() -> list[Path]:
    """Every file of the repository, relative: tracked, or new and not ignored."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(listed, cwd=paths.PROJECT, capture_output=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"the files to check are those that git lists: {error}")
    names = [Path(name) for name in done.stdout.decode().split("\0") if name]
    return [name for name in names if (paths.PROJECT / name).is_file()]


def check(*command: str) -> None:
    """Run a tool in the repository; fail with what it prints."""
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed: `python3 build.py test` installs it")
    done = subprocess.run(
        command, cwd=paths.PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        pytest.fail(f"{' '.join(command[:4])} ...\n{done.stdout}", pytrace=False)


def module(name: str) -> list[str]:
    """A tool that comes as a Python package, of this very environment."""
    return [sys.executable, "-m", name]


def first_line(path: Path) -> bytes:
    with (paths.PROJECT / path).open("rb") as file:
        return file.readline(200)


def is_shell(path: Path) -> bool:
    """By extension, or by the program that its first line names."""
    if path.suffix in (".sh", ".bash"):
        return True
    line = first_line(path)
    if path.suffix in (".j2", ".py") or not line.startswith(b"#!"):
        return False
    return any(word.rsplit(b"/")[-1] in (b"sh", b"bash", b"dash") for word in line[2:].split())


def test_files_stay_small() -> None:
    """One that grows past 400 lines, its licence's apart, does more than one thing."""
    sources = [path for path in files() if path.suffix in (".py", ".c", ".h")]
    texts = {path: (paths.PROJECT / path).read_text().splitlines() for path in sources}
    lengths = {path: sum(MARK not in line for line in lines) for path, lines in texts.items()}
    assert {str(path): length for path, length in lengths.items() if length > 400} == {}


def test_ruff_finds_nothing() -> None:
    check(*module("ruff"), "check", "--quiet", "--output-format=concise", ".")


def test_python_is_formatted() -> None:
    check(*module("ruff"), "format", "--check", "--quiet", "--diff", ".")


def test_types_are_right() -> None:
    check(*module("mypy"))


def test_types_of_the_launcher_are_right() -> None:
    check(*module("mypy"), "build.py")


def test_shell_scripts_are_right() -> None:
    scripts = [str(path) for path in files() if is_shell(path)]
    assert scripts, "there is at least .ci/run"
    check("shellcheck", "--external-sources", *scripts)


def test_c_is_right() -> None:
    sources = [str(path) for path in files() if path.suffix == ".c"]
    if not sources:
        pytest.skip("there is no C yet")
    folders = sorted({str(Path(source).parent) for source in sources})
    check(
        "cppcheck",
        "--quiet",
        "--error-exitcode=1",
        "--enable=warning,performance,portability",
        "--inline-suppr",
        "--std=c11",
        # Headers of Slurm, PAM and the kernel are not here to read, and need no check of ours.
        "--suppress=missingIncludeSystem",
        # It does not know __attribute__((cleanup)), by which native/base/scoped.h frees and closes.
        "--suppress=memleak",
        "--suppress=resourceLeak",
        # A note of newer versions that they do not look at every branch; with an exit status of its own.
        "--suppress=normalCheckLevelMaxBranches",
        # A test that runs out of memory may crash.
        "--suppress=nullPointerOutOfMemory:*/tests/*",
        "-I.",
        *(f"-I{folder}" for folder in folders),
        *sources,
    )
