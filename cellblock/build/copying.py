"""Copies files out of layers' trees, and sources into a root, without running anything of theirs."""

from __future__ import annotations

import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cellblock.errors import DefinitionError
from cellblock.key import NOT_SOURCES


def copy_out(trees: Sequence[Path], files: Sequence[tuple[str, str]], target: Path) -> None:
    """Copy (path in the image of `trees`, path here) into the new folder `target`, with modes and links.

    A folder's content goes into the path here; a file goes to it, or into it when it ends in `/`. Raises
    DefinitionError when the image has no such path.
    """
    target.mkdir()
    for there, here in files:
        relative = there.strip("/")
        found = [tree / relative for tree in trees if _leads(tree, relative)]
        # The topmost that says anything about the path decides; folders are merged from below.
        if not found or _removed(found[-1]):
            raise DefinitionError(
                f"there is no {there} in the image that it is to be copied from",
                hint="correct `artifacts` in image.yaml",
            )
        if found[-1].is_dir() and not found[-1].is_symlink():
            place = target / here.strip("/")
            place.mkdir(parents=True, exist_ok=True)
            for folder in found:
                if folder.is_dir():
                    _copy(f"{folder}/.", place)
        else:
            name = Path(relative).name if here.endswith("/") else ""
            place = target / here.strip("/") / name
            place.parent.mkdir(parents=True, exist_ok=True)
            _copy(str(found[-1]), place)


def copy_sources(folder: Path, place: Path) -> None:
    """Copy a folder of the project to `place`, without what editors and compilers leave in it."""
    if not folder.is_dir():
        raise DefinitionError(f"{folder}: there is no such folder of sources", hint="correct `sources`")
    shutil.copytree(folder, place, symlinks=True, ignore=shutil.ignore_patterns(*NOT_SOURCES))
    for path in (place, *place.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o111 else 0o644)


def _copy(source: str, target: Path) -> None:
    subprocess.run(["cp", "--archive", "--", source, str(target)], check=True)


def _leads(tree: Path, relative: str) -> bool:
    """Whether a tree holds `relative` by real folders: a symbolic link could lead out of it."""
    path = tree
    for part in Path(relative).parts[:-1]:
        path = path / part
        if path.is_symlink() or not path.is_dir():
            return False
    try:
        (tree / relative).lstat()
    except FileNotFoundError:
        return False
    return True


def _removed(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0
