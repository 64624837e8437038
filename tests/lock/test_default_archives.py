# SPDX-License-Identifier: Apache-2.0
"""Archives that mmdebstrap knows are asked for once, until this machine's programs change."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.errors import CellblockError
from cellblock.lock.default_archives import default_archives
from cellblock.variants import load_variants

VARIANT = load_variants(paths.PROJECT / "images/variants.yaml")["debian13"]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for each time that mmdebstrap was started."""
    real = shutil.which("mmdebstrap")
    if real is None or os.geteuid() != 0:
        pytest.skip("needs mmdebstrap and root: `python3 build.py test` as root installs it")
    log, program = tmp_path / "log", tmp_path / "bin/mmdebstrap"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho asked >>{log}\nexec {real} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CELLBLOCK_CACHE", str(tmp_path / "cache"))
    return log


def times(log: Path) -> int:
    return len(log.read_text().splitlines())


def test_they_are_asked_for_once(asked: Path, tmp_path: Path) -> None:
    first = default_archives(VARIANT)
    assert [archive.suite for archive in first][:1] == ["trixie"]
    assert default_archives(VARIANT) == first
    assert times(asked) == 1
    # Another mmdebstrap may know others.
    os.utime(tmp_path / "bin/mmdebstrap", (1, 1))
    assert default_archives(VARIANT) == first
    assert times(asked) == 2
    (kept,) = (tmp_path / "cache/archives").iterdir()
    kept.write_text(kept.read_text()[:-5])
    assert default_archives(VARIANT) == first
    assert times(asked) == 3


def test_a_failure_is_told_each_time(asked: Path, tmp_path: Path) -> None:
    (tmp_path / "bin/mmdebstrap").write_text(
        f"#!/bin/sh\necho asked >>{asked}\necho unknown suite >&2\nexit 1\n"
    )
    for number in (1, 2):
        with pytest.raises(CellblockError, match=r"mmdebstrap knows no mirror for Debian .*: unknown suite"):
            default_archives(VARIANT)
        assert times(asked) == number


def test_without_mmdebstrap_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CellblockError, match="mmdebstrap is not installed"):
        default_archives(VARIANT)
