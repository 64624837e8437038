# SPDX-License-Identifier: Apache-2.0
"""Runs a command of build.py about a cluster, as a person types it."""

from __future__ import annotations

import signal
import subprocess
import sys

from cellblock.paths import PROJECT


def type_command(name: str, target: str, *arguments: str, timeout_s: int) -> subprocess.CompletedProcess[str]:
    """Run `build.py TARGET --name NAME ARGUMENTS` for `timeout_s` seconds at most."""
    return subprocess.run(
        _argv(name, target, arguments),
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )


def interrupt_command(
    name: str, target: str, *arguments: str, moment: str, by: signal.Signals = signal.SIGKILL
) -> tuple[int, str]:
    """Send the command a signal as soon as it prints `moment`; returns its status and all that it printed."""
    said = ""
    with subprocess.Popen(
        _argv(name, target, arguments),
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said += line
            if moment in line:
                process.send_signal(by)
    return process.returncode, said


def _argv(name: str, target: str, arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "cellblock.cli", *target.split(), "--name", name, *arguments]
