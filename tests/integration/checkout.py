# SPDX-License-Identifier: Apache-2.0
"""Copies the checkout for tests that change its files or lock its packages."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from cellblock.paths import PROJECT


def copy_checkout(folder: Path) -> Path:
    """Copy the project, with what was compiled for it, into `folder`, as a repository; returns the folder."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=PROJECT, check=True, capture_output=True).stdout.decode().split("\0")
    compiled = [str(path.relative_to(PROJECT)) for path in (PROJECT / "cellblock").glob("*.so")]
    for name in (*names, *compiled):
        if name and (PROJECT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PROJECT / name, folder / name)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    return folder
