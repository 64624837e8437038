# SPDX-License-Identifier: Apache-2.0
"""What users compile: a warning of their compiler is none of their errors, and none that tests let pass."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cellblock.paths import PROJECT
from tests import c_compiling


def test_warnings_are_errors_for_tests_alone(tmp_path: Path) -> None:
    """Other compilers have other warnings: this one is told to, by one that the code is full of."""
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed: `python3 build.py test` installs it")
    for name in ("spank_jail", "enroot", "pyxis"):
        sources, build = PROJECT / name, tmp_path / name
        part = "objects/native/base/text.o"
        flags = "CFLAGS=-O0 -Wc++-compat -Wtraditional-conversion"
        command = ["make", "-C", str(sources), f"BUILD={build}", flags, f"{build}/{part}"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "warning: " in done.stderr
        (build / part).unlink()
        done = subprocess.run([*command, "WERROR=1"], capture_output=True, text=True)
        assert done.returncode != 0
        assert "error: " in done.stderr


@pytest.mark.parametrize("how", ["CFLAGS=-O1", "CFLAGS=-O3", "TOGETHER=1"])
@pytest.mark.parametrize("name", ["spank_jail", "enroot", "enroot/importing", "pyxis"])
def test_what_users_compile_has_no_warnings(name: str, how: str, tmp_path: Path) -> None:
    """Tests compile without optimisation, and FORTIFY's marks, such as of results to look at, need one.

    More of it finds more that may be unset, or too long. Images are compiled with -O2, the sources of a
    folder in one go: what two of them name alike is an error there.
    """
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed: `python3 build.py test` installs it")
    flags = (f"BUILD={tmp_path}", how, "WERROR=1")
    command = ["make", "-k", "-j4", "-C", str(PROJECT / name), *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    found = [line for line in done.stderr.splitlines() if "error: " in line]
    # Where Slurm's headers are not installed, the few sources that need them are left to the build's image.
    found = [line for line in found if "fatal error: slurm/" not in line]
    assert not found, "\n".join(found)
    assert list(tmp_path.rglob("*.o"))


def test_tests_compile_with_it() -> None:
    done = c_compiling.make(PROJECT / "enroot", c_compiling.build_folder(PROJECT / "enroot"), "-n", "-B")
    assert "-Werror" in done.stdout
