# SPDX-License-Identifier: Apache-2.0
"""`build.py test`: runs the tests, after installing what they need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

# Most of their time is waiting: for Slurm, for containers, for disks (docs/decisions/ci-side-by-side.md).
_JOBS = 5
# What pytest does in its own process only.
_ALONE = ("--pdb", "--trace", "-s", "--capture=no", "--collect-only", "--co")


THOROUGH = {
    "CELLBLOCK_FUZZ_SECONDS": "3600",
    "CELLBLOCK_FUZZ_SEED": "0",
    "CELLBLOCK_EXAMPLES": "2000",
    "CELLBLOCK_POWER_CUTS": "20",
    "CELLBLOCK_CRASHES": "60",
    "CELLBLOCK_HEALTH_RELEASES": "1",
    "CELLBLOCK_HEALTH_TURNS": "10000",
    "CELLBLOCK_KILLS": "60",
    "CELLBLOCK_FULL_DISKS": "20",
    "CELLBLOCK_NEEDS": "1",
    "CELLBLOCK_OTHER_RELEASES": "1",
    "CELLBLOCK_ESCAPE_ALL": "1",
    "CELLBLOCK_SOAK_STEPS": "5000",
    "CELLBLOCK_DAEMON_KILLS": "200",
    "CELLBLOCK_KUBERNETES_RELEASES": "1",
    "CELLBLOCK_TWO_CONTROLLERS": "1",
    "CELLBLOCK_UPGRADE_KILLS": "13",
    "CELLBLOCK_PACKAGES": "1",
    "CELLBLOCK_POD_DELETIONS": "50",
    "CELLBLOCK_SCALINGS": "10",
    "CELLBLOCK_WORKER_BY_BUILDAH": "1",
    "CELLBLOCK_FRESH_MACHINES": "1",
    "CELLBLOCK_RELEASE": "1",
    "PYTEST_TIMEOUT": "86400",
}
"""How long, and how often, where no test of a change can wait for it; what the person has set counts."""


def run_tests(
    context: typer.Context,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Leave out what needs root, a container engine and real Slurm, or is slow."
        ),
    ] = False,
    thorough: Annotated[
        bool,
        typer.Option(
            "--thorough", help="Fuzz each target for an hour, and try more moments and inputs: a day, in all."
        ),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help="Tests at once (default: 5; 1 when tests are named)."),
    ] = None,
) -> None:
    """Run all tests: linters, type checker, unit tests, integration tests. More arguments go to pytest."""
    from cellblock import paths

    # The launcher has installed what `test` needs; -I because of whoever's PYTHONPATH, as there.
    command = [sys.executable, "-I", "-m", "pytest"]
    if quick:
        # tests/slow.txt names the slow ones; tests/integration needs not even be read.
        command += ["-m", "not integration and not slow", f"--ignore={paths.PROJECT}/tests/integration"]
    if jobs is None:
        named = any(not argument.startswith("-") or argument in _ALONE for argument in context.args)
        # What a quick run has waits for nothing, and each process collects all tests for itself.
        at_once = min(_JOBS, len(os.sched_getaffinity(0))) if quick else _JOBS
        jobs = 1 if named else at_once
    if jobs > 1:
        # By the groups and in the order of tests/conftest.py.
        command += [f"--numprocesses={jobs}", "--dist=loadscope", "--no-loadscope-reorder"]
    command += context.args
    # Tests that are named by a path from where the user stands run from there, all others from the project.
    from_here = any(Path(argument.partition("::")[0]).exists() for argument in context.args)
    if from_here:
        command += [f"--rootdir={paths.PROJECT}", f"--config-file={paths.PROJECT}/pyproject.toml"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # ruff and mypy are there
    environment = {**(THOROUGH if thorough else {}), **os.environ, "PATH": path}
    # Images set it. Each of thousands of commands would compile what it imports.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(command, cwd=None if from_here else paths.PROJECT, env=environment, check=False)
    raise typer.Exit(done.returncode)


CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Settings for registering `run_tests` as `test`: unknown options are pytest's."""
