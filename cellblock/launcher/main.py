# SPDX-License-Identifier: Apache-2.0
"""Prepares everything that `build.py` needs before Cellblock itself can run, then starts it.

install.py makes .venv. Standard library only, and as little of that as possible when .venv exists: a stamp
in it says what was installed, from what. If it still holds, the process becomes the virtual environment's
Python.

The stamp is removed first and written last, so a killed installation is made again from nothing. Any number
of processes may run at once: one of them holds the lock on the checkout's directory and installs; the others
wait.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself takes 5 ms to import
    from collections.abc import Iterable

# pathlib takes 6 ms.
PROJECT = os.path.abspath(f"{__file__}/../../..")  # noqa: PTH100
VENV = ".venv"
STAMP = "cellblock-installed"
STALE = "stale"
"""Fingerprint of an environment that works but could not be brought up to date."""

ALL_GROUPS = ["python", "compile", "core", "unit", "docs", "test", "kubernetes"]
"""The groups of system_packages.NEEDS, in its order."""
NEEDS_OF_TESTS = "tests/needs.txt"

# Files that decide what is installed: the project's metadata, and the C that is compiled for Python.
INPUTS = (
    "pyproject.toml",
    "setup.py",
    "cellblock/launcher/system_packages.py",
)
COMPILED = (
    "native/cffi",
    "native/base",
    "native/cdi",
    "native/container",
    "native/directory",
    "native/jail",
    "native/layers",
    "native/mount",
    "native/seccomp",
    "native/settings",
    "native/tree_check",
    "native/volume",
    "pyxis",
    "pyxis/options",
)


def main(args: list[str]) -> int:
    """Install what is missing, then become `python -m cellblock.cli ARGS`.

    Returns on failure, for a build that is known to have nothing to do, and for help that needs nothing.
    """
    if args == ["--version"]:
        return _print(version_text(PROJECT))
    groups = groups_for(args)
    if not ready(PROJECT, groups):
        if any(name.startswith("_") and name.endswith("_COMPLETE") for name in os.environ):
            return 0  # a shell asks for completions: no moment to install anything
        from cellblock.launcher import first_answers

        answered = first_answers.answer(PROJECT, args)
        if answered is not None:
            return answered
        from cellblock.launcher import install as launcher_install

        status = launcher_install.install(PROJECT, groups, args)
        if status:
            return status
    if args[:1] == ["build"]:
        from cellblock.launcher import up_to_date

        answer = up_to_date.cached_answer(PROJECT, args[1:]) if up_to_date.is_simple(args[1:]) else None
        if answer is not None:
            return _print(f"{answer}\n")
    python = venv_python(PROJECT)
    sys.stdout.flush()
    sys.stderr.flush()
    # -I: neither the directory the user stands in nor PYTHONPATH may slip modules under a root process.
    os.execv(python, [python, "-I", "-m", "cellblock.cli", *args])
    return 1


def version_text(project: str) -> str:
    """What `build.py --version` prints: the version, and the commit where the checkout has one."""
    with open(f"{project}/pyproject.toml", encoding="utf-8") as file:  # noqa: PTH123
        version = next((line.split('"')[1] for line in file if line.startswith("version = ")), "unknown")
    return f"Cellblock {version}{_commit(project)}\n"


def _commit(project: str) -> str:
    """The checkout's commit, in brackets, with a word when files differ from it; empty without git."""
    import subprocess

    # safe.directory: root may ask about a checkout that belongs to another user.
    command = ["git", "-C", project, "-c", f"safe.directory={project}", "--no-optional-locks"]
    command += ["describe", "--always", "--dirty=, changed", "--exclude=*"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    except OSError:
        return ""
    commit = done.stdout.decode(errors="replace").strip()
    return f" ({commit})" if commit else ""


def _print(text: str) -> int:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        from cellblock.launcher import closed_pipe

        return closed_pipe.end_quietly()
    return 0


def groups_for(args: list[str]) -> list[str]:
    """The groups of packages that a command line needs.

    All that builds and clusters take come at once: whoever begins with another command would wait twice.
    Tests that are named bring only what they need: who changes one thing begins with its tests.
    """
    target = next((arg for arg in args if not arg.startswith("-")), "")
    groups = ["python", "compile", "core"]
    if target == "test":
        groups = groups_for_tests(PROJECT, args)
    if target == "docs":
        groups = ["python", "docs"]
    if target == "bench":
        # Benchmarks compare with tools that the tests need too.
        groups = ALL_GROUPS
    if (
        "--quick" in args
        or (target == "bench" and "kubernetes" not in args)
        or not starts_kubernetes(PROJECT)
    ):
        groups = [group for group in groups if group != "kubernetes"]
    return groups


def kubernetes_folder(project: str) -> str:
    """Where the program `kubernetes` is that starts a real one for tests and `bench`, if there is one."""
    return os.environ.get("CELLBLOCK_KUBERNETES") or f"{os.path.dirname(project)}/shared/kubernetes"  # noqa: PTH120


def starts_kubernetes(project: str) -> bool:
    """Whether tests on a real Kubernetes will run here."""
    return os.geteuid() == 0 and os.access(f"{kubernetes_folder(project)}/kubernetes", os.X_OK)


def groups_for_tests(project: str, args: list[str]) -> list[str]:
    """The groups that the tests need which `args` name, by tests/needs.txt; all groups when it names none."""
    found = {"python", "unit"}
    named = [path for arg in args if os.path.exists(path := arg.partition("::")[0])]  # noqa: PTH110
    needs = read_needs(project) if named else None
    if not needs:
        return ALL_GROUPS
    for path in named:
        relative = os.path.relpath(os.path.realpath(path), project)
        above = [line for line in needs if f"{relative}/".startswith(f"{line}/")]
        if not above:
            return ALL_GROUPS
        within = [line for line in needs if line.startswith(f"{relative}/")]
        for line in (max(above, key=len), *within):
            found.update(needs[line])
    return [group for group in ALL_GROUPS if group in found]


def read_needs(project: str) -> dict[str, list[str]]:
    """Path below the project -> groups beside python and unit that its tests need; empty when unknown."""
    try:
        with open(f"{project}/{NEEDS_OF_TESTS}", encoding="utf-8") as file:  # noqa: PTH123
            lines = [line.split() for line in file if line.strip() and not line.startswith("#")]
    except OSError:
        return {}
    return {path: groups for path, *groups in lines}


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
