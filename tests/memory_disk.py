# SPDX-License-Identifier: Apache-2.0
"""Mounts a small file system in memory, for tests of full disks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def memory_disk(folder: Path, options: str) -> Iterator[Path]:
    """Make `folder`, and mount a tmpfs there with mount(8)'s `options`. Skips the test without root."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
