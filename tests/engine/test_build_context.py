# SPDX-License-Identifier: Apache-2.0
"""The build context of a Containerfile: files, modes, and the tars of its bases."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cellblock.engine.build_context import make_root, write_context
from cellblock.engine.stages import Stage
from cellblock.process import ProgramFailed, Programs


def test_the_context_holds_files_and_sources_with_modes_as_git_keeps_them(tmp_path: Path) -> None:
    source = tmp_path / "src"
    (source / "build").mkdir(parents=True)
    (source / "build" / "made.o").write_text("")
    (source / "run").write_text("")
    (source / "run").chmod(0o700)
    (source / "read").write_text("")
    (source / "read").chmod(0o600)
    made = Stage("s", "scratch", "", (), (("s/sources/0-src", source),))
    write_context([made], tmp_path / "context")
    there = tmp_path / "context/s/sources/0-src"
    assert sorted(path.name for path in there.iterdir()) == ["read", "run"]
    assert (there / "run").stat().st_mode & 0o777 == 0o755
    assert (there / "read").stat().st_mode & 0o777 == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_bootstrap_that_fails_leaves_neither_mounts_nor_folders(tmp_path: Path) -> None:
    note, archive = tmp_path / "where", tmp_path / "archive"
    archive.mkdir()
    (archive / "deb").touch()
    lines = f'echo "$TMPDIR" > {note}; mkdir "$TMPDIR/x"; mount --bind {archive} "$TMPDIR/x"; exit 3'
    with pytest.raises(ProgramFailed):
        make_root(tmp_path / "context", "roots/base.tar", ["sh", "-c", lines], Programs(), lambda line: None)
    where = note.read_text().strip()
    assert not Path(where).exists()
    assert where not in Path("/proc/self/mountinfo").read_text()
    assert (archive / "deb").is_file()
    assert list((tmp_path / "context" / "roots").iterdir()) == []
