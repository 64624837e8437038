# SPDX-License-Identifier: Apache-2.0
"""Runs skopeo(1), which copies images between OCI layouts and the storages of podman and Docker.

Only options are used that every version of skopeo in the supported distributions has.
"""

from __future__ import annotations

import json
import shutil
from typing import Any

from cellblock.errors import CellblockError
from cellblock.process import ProgramFailed, Programs


def copy(source: str, target: str, *options: str, programs: Programs, hint: str) -> None:
    """Copy `source` to `target`, both as skopeo names images: `oci:DIR:NAME`, `containers-storage:NAME`.

    Layers that are there are not copied again. Raises CellblockError when skopeo is missing or fails (with
    `hint`), Interrupted after `programs.stop()`.
    """
    _run(programs, hint, "copy", "--quiet", *options, source, target)


def configuration(source: str, *, programs: Programs, hint: str) -> dict[str, Any]:
    """The configuration (OCI config.md) of the image `source`. Raises CellblockError as `copy` does."""
    found: dict[str, Any] = json.loads(_run(programs, hint, "inspect", "--config", source))
    return found


def _run(programs: Programs, hint: str, *arguments: str) -> str:
    if shutil.which("skopeo") is None:
        raise CellblockError(
            "skopeo is not installed, and it copies images between engines and layouts",
            hint="apt-get install skopeo; `python3 build.py doctor` names all that is missing",
        )
    try:
        return programs.run(["skopeo", *arguments]).output
    except ProgramFailed as error:
        error.hint = hint
        raise
