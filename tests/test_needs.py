# SPDX-License-Identifier: Apache-2.0
"""tests/needs.txt: each path is there, and what it says to need nothing but Python does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cellblock.launcher import main as launcher
from cellblock.launcher.system_packages import NEEDS
from cellblock.paths import PROJECT

_BARE = ("required", "important")
_BESIDE = ("git", "python3", "python3-minimal", "ca-certificates")


def test_each_line_names_a_path_and_groups_that_there_are() -> None:
    needs = launcher.read_needs(str(PROJECT))
    assert {path for path in needs if not (PROJECT / path).exists()} == set()
    assert {group for groups in needs.values() for group in groups} <= set(NEEDS)
    assert needs["tests"] == [group for group in NEEDS if group not in ("python", "unit", "kubernetes")]


def bare_path(folder: Path) -> str:
    """A PATH with the programs that each Debian has, and git and Python."""
    if not shutil.which("dpkg-query"):
        pytest.skip("only dpkg says which programs belong to a bare system")
    format_ = "${Package} ${Priority}\\n"
    listed = subprocess.run(["dpkg-query", "-W", "-f", format_], capture_output=True, text=True, check=True)
    known = dict(line.split(" ", 1) for line in listed.stdout.splitlines())
    needed = {
        package for needs in NEEDS.values() for need in needs for one in need.alternatives for package in one
    }
    names = [name for name, priority in known.items() if priority in _BARE or name in _BESIDE]
    owned = subprocess.run(
        ["dpkg", "-L", *(name for name in names if name not in needed)],
        capture_output=True,
        text=True,
        check=True,
    )
    for line in owned.stdout.splitlines():
        path, link = Path(line), folder / Path(line).name
        if path.parent.name in ("bin", "sbin") and path.is_file() and not link.is_symlink():
            link.symlink_to(path)
    return f"{Path(sys.executable).parent}:{folder}"


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(False, id="is collected"),
        pytest.param(
            True,
            id="passes",
            marks=pytest.mark.skipif(
                "CELLBLOCK_NEEDS" not in os.environ,
                reason="minutes: `build.py test --thorough` sets CELLBLOCK_NEEDS",
            ),
        ),
    ],
)
def test_what_needs_only_python_does_without_parts_in_c_and_further_programs(
    tmp_path: Path, run: bool
) -> None:
    needs = launcher.read_needs(str(PROJECT))
    # The linters run in the same suite.
    paths = [path for path, groups in needs.items() if not groups and path != "tests/lint"]
    apart = [f"--ignore={path}" for path, groups in needs.items() if groups and path != "tests"]
    options = [
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.without_c",
        *([] if run else ["--collect-only"]),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *apart, *paths],
        cwd=PROJECT,
        env={**os.environ, "PATH": bare_path(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    assert "SKIPPED" not in done.stdout, (
        "a test that is skipped is not one that passes: " + done.stdout[-4000:]
    )
