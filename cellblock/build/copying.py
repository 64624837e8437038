# SPDX-License-Identifier: Apache-2.0
"""Copies files out of built images, and sources of the project into a root, and runs nothing there.

layer_builder.py calls it for `artifacts` and `compile` of a definition.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from cellblock.build.working_root import WorkingRoot
from cellblock.cache_key import NOT_SOURCES
from cellblock.engine.recipe import CopyFrom
from cellblock.errors import DefinitionError
from cellblock.process import ProgramFailed, Programs

# Runs on this machine while ROOT shows the image: no folder on the way may be a link that leads out of it.
_COPY = r"""
set -euo pipefail
root=$(realpath -- "$1") target=$2
shift 2
while [ $# -gt 0 ]; do
  there=$1 here=$2
  shift 2
  folder=$(realpath -e -- "$root/$(dirname -- "$there")" 2>/dev/null) || folder=
  found=$folder/$(basename -- "$there")
  case $folder/ in "$root"/*) ;; *) found= ;; esac
  if [ -z "$found" ] || { [ ! -e "$found" ] && [ ! -L "$found" ]; }; then
    printf '%s\n' "$there"
    exit 3
  fi
  if [ -d "$found" ] && [ ! -L "$found" ]; then
    mkdir -p -- "$target/$here"
    cp -a -- "$found/." "$target/$here"
  else
    case $here in */) place=$target/$here$(basename -- "$there") ;; *) place=$target/$here ;; esac
    mkdir -p -- "$(dirname -- "$place")"
    cp -a -- "$found" "$place"
  fi
done
"""


def copy_out(root: WorkingRoot, copy: CopyFrom, target: Path, programs: Programs) -> None:
    """Copy (path in `root`, path here) into the new folder `target`, with modes and links.

    A folder's content goes into the path here; a file goes to it, or into it when it ends in `/`. Raises
    DefinitionError, naming the line that asks for it, when the image has no such path.
    """
    target.mkdir()
    pairs = [argument for pair in copy.files for argument in pair]
    argv = ["bash", "-c", _COPY, "bash", str(root.folder / "root"), str(target), *pairs]
    try:
        programs.run(root.reading(argv))
    except ProgramFailed as error:
        if error.finished.status != 3:
            raise
        missing = error.finished.output.splitlines()[-1]
        places = {there: at for (there, _), at in zip(copy.files, copy.at, strict=False)}
        at = f"{places[missing]}: " if missing in places else ""
        raise DefinitionError(
            f"{at}there is no {missing} in image {copy.image}",
            hint="correct the path, or have that image make the file",
        ) from error


def copy_sources(folder: Path, place: Path, at: str = "build") -> None:
    """Copy a folder of the project to `place`, without what editors and compilers leave in it.

    Raises DefinitionError, with `at` (FILE:LINE: KEY), when there is no such folder.
    """
    if not folder.is_dir():
        raise DefinitionError(f"{at}.sources: there is no folder {folder}", hint="correct `sources`")
    shutil.copytree(folder, place, symlinks=True, ignore=shutil.ignore_patterns(*NOT_SOURCES))
    for path in (place, *place.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o111 else 0o644)
