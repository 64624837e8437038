# SPDX-License-Identifier: Apache-2.0
"""Writes the build context of a Containerfile: the files that it copies, and tars of root filesystems."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from cellblock.cache_key import NOT_SOURCES
from cellblock.engine.stages import Stage
from cellblock.process import Programs


def write_context(context: Sequence[Stage], folder: Path) -> None:
    """Put the files of `context` below `folder`, with modes 0644 and 0755; tars are not made here."""
    for stage in context:
        for name, source in stage.files:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                ignore = shutil.ignore_patterns(*NOT_SOURCES)
                shutil.copytree(source, target, symlinks=True, ignore=ignore, dirs_exist_ok=True)
            else:
                shutil.copyfile(source, target)
                target.chmod(source.stat().st_mode)
    for directory, _, names in os.walk(folder):
        Path(directory).chmod(0o755)
        for path in (Path(directory, name) for name in names):
            # git keeps no more of a mode than this, and the umask of the checkout must not matter.
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o111 else 0o644)


def make_root(
    context: Path,
    name: str,
    command: Sequence[str],
    programs: Programs,
    on_line: Callable[[str], None],
) -> None:
    """Make the tar `name` of a build context by `command` (`Stage.roots`).

    Raises ProgramFailed, Interrupted, or OSError; then there is none.
    """
    target = context / name
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name("partial.tar")
    try:
        argv = [str(partial) if word == name else word for word in command]
        with tempfile.TemporaryDirectory(prefix="cellblock-") as scratch:
            Path(scratch).chmod(0o755)  # apt's own user reads there
            environment = {"DEBIAN_FRONTEND": "noninteractive", "TMPDIR": scratch}
            # One that fails leaves its root, with what it mounted there, behind.
            programs.run(["unshare", "--mount", *argv], on_line=on_line, env=environment)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
