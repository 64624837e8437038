"""What `build.py` does before Cellblock itself can run: make .venv and find what it needs.

Standard library only, and on the everyday path as little of that as possible: a stamp in .venv says
what was installed, from what; when it still holds, the process becomes the virtual environment's Python.

What a crash leaves: the stamp is removed first and written last, so an installation that was killed is
made again from nothing. Who may run at once: any number; the one that holds the lock on the checkout's
directory installs, the others wait for it.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself takes 5 ms to import
    from collections.abc import Iterable

PROJECT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100,PTH120 - pathlib takes 6 ms
VENV = ".venv"
STAMP = "cellblock-installed"
STALE = "stale"
"""Fingerprint of an environment that works but could not be brought up to date."""

# Files that decide what is installed: the project's metadata, and the C that is compiled for Python.
INPUTS = (
    "pyproject.toml",
    "setup.py",
    "cellblock/system_packages.py",
    "enroot/container/fstab.c",
    "enroot/container/fstab.h",
)
COMPILED = (
    "spank_jail",
    "spank_jail/core",
    "enroot",
    "enroot/image/core",
    "enroot/settings",
    "enroot/text",
    "pyxis",
    "pyxis/options",
    "cellblock/jail/scan",
)


def main(args: list[str]) -> int:
    """Install what is missing, then become `python -m cellblock.cli ARGS`.

    Returns on failure, for a build that is known to have nothing to do, and for help that needs nothing.
    """
    groups = groups_for(args)
    if not ready(PROJECT, groups):
        if any(name.startswith("_") and name.endswith("_COMPLETE") for name in os.environ):
            return 0  # a shell asks for completions: no moment to install anything
        from cellblock import first_answers

        answered = first_answers.answer(PROJECT, args)
        if answered is not None:
            return answered
        from cellblock import launcher_install

        status = launcher_install.install(PROJECT, groups, args)
        if status:
            return status
    if args[:1] == ["build"]:
        from cellblock import unchanged

        said = unchanged.said_before(PROJECT, args[1:]) if unchanged.is_simple(args[1:]) else None
        if said is not None:
            return _print(f"{said}\n")
    python = venv_python(PROJECT)
    sys.stdout.flush()
    sys.stderr.flush()
    # -I: neither the directory the user stands in nor PYTHONPATH may slip modules under a root process.
    os.execv(python, [python, "-I", "-m", "cellblock.cli", *args])
    return 1


def _print(text: str) -> int:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        from cellblock import failure

        return failure.end_quietly()
    return 0


def groups_for(args: list[str]) -> list[str]:
    """The groups of system packages that a command line needs.

    All that builds and clusters take come at once: whoever begins with another command would wait twice.
    """
    target = next((arg for arg in args if not arg.startswith("-")), "")
    # Benchmarks compare with tools that the tests need too.
    return ["python", "core", "test"] if target in ("test", "bench") else ["python", "core"]


def venv_python(project: str) -> str:
    """The virtual environment's interpreter."""
    return f"{project}/{VENV}/bin/python"


def ready(project: str, groups: Iterable[str]) -> bool:
    """Whether the environment is what an installation for `groups` would make now."""
    stamp = read_stamp(project)
    return (
        len(stamp) == 3
        and stamp[0] == fingerprint(project)
        and has_interpreter(project, stamp)
        and set(groups) <= set(stamp[2].split())
    )


def read_stamp(project: str) -> list[str]:
    """Fingerprint, interpreter and groups of the installation; empty when there is none."""
    try:
        with open(f"{project}/{VENV}/{STAMP}", encoding="utf-8") as file:  # noqa: PTH123
            return file.read().splitlines()
    except OSError:
        return []


def has_interpreter(project: str, stamp: list[str]) -> bool:
    """Whether the environment's Python is there and still the one it was made with.

    Not the one that runs now: two people may start build.py with two interpreters, and the environment
    serves both. After an upgrade of the system's python3 its link leads elsewhere and this is false.
    """
    python = venv_python(project)
    return os.access(python, os.X_OK) and os.path.realpath(python) == stamp[1]


def fingerprint(project: str) -> str:
    """Hash of everything that decides what an installation makes, and of where it lies."""
    import hashlib

    paths = list(INPUTS)
    for folder in COMPILED:
        try:
            names = os.listdir(f"{project}/{folder}")  # noqa: PTH208
        except FileNotFoundError:
            continue
        paths += sorted(f"{folder}/{name}" for name in names if name.endswith((".c", ".h", ".py")))
    total = hashlib.sha256(project.encode())
    for path in paths:
        try:
            with open(f"{project}/{path}", "rb") as file:  # noqa: PTH123
                content = file.read()
        except FileNotFoundError:
            continue
        total.update(f"{path} {len(content)}\n".encode())
        total.update(content)
    return total.hexdigest()
