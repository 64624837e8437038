# SPDX-License-Identifier: Apache-2.0
"""A command of build.py about a cluster, as typed."""

from __future__ import annotations

import subprocess
import sys

from cellblock.paths import PROJECT


def type_command(name: str, target: str, *arguments: str, timeout_s: int) -> subprocess.CompletedProcess[str]:
    """Run `build.py TARGET --name NAME ARGUMENTS` for `timeout_s` seconds at most."""
    return subprocess.run(
        [sys.executable, "-m", "cellblock.cli", target, "--name", name, *arguments],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
