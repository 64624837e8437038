# SPDX-License-Identifier: Apache-2.0
"""Installs Cellblock at the first use of `build.py`: system packages, then .venv, then Cellblock in it.

Standard library only. `cellblock.launcher.main` calls it when .venv is missing or out of date. It writes
plain sentences to stderr, because `cellblock.cli` cannot run yet.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from cellblock.launcher import closed_pipe, failure, progress, system_packages
from cellblock.launcher import main as launcher

LISTS = Path("/var/lib/apt/lists")
TAIL_LINES = 15
"""As much of a failed program's output as fits a screen next to the explanation."""

NO_NETWORK = re.compile(
    r"name resolution|failure resolving|Could not resolve|Network is unreachable|NewConnectionError"
    r"|Connection refused|timed out|ConnectTimeout|No route to host|Could not connect",
    re.IGNORECASE,
)
_NO_NETWORK_NEXT = (
    "  next: this looks like no network: check it, or point apt and pip at a mirror you can",
    "        reach (/etc/apt/sources.list.d, PIP_INDEX_URL); then run build.py again",
)

NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
# What pip unpacks of itself, and some more.
FULL_BYTES = 50_000_000


class InstallError(Exception):
    """An installation step failed. The message is for the user, complete with the line `  next: ...`."""


def install(project: str, groups: Sequence[system_packages.Group], args: list[str]) -> int:
    """Make the environment ready for `groups`. Returns an exit status; 0: ready.

    `args`, the words after `build.py`, say how a failure is told.
    """
    try:
        with _locked(project) as lock:
            if not launcher.ready(project, groups):  # whoever held the lock may have done it all
                _install(Path(project), groups, lock)
    except InstallError as error:
        message, _, next_step = str(error).partition("\n  next: ")
        return failure.tell(message, next_step, 1, args)
    except BrokenPipeError:
        return closed_pipe.end_quietly()  # whoever read what this says is gone
    except OSError as error:
        where = error.filename or project
        return failure.tell(
            f"cannot install into {project}: {error.strerror}: {where}",
            "run build.py as the owner of the checkout, or free some space",
            1,
            args,
        )
    except KeyboardInterrupt:
        return failure.tell("interrupted", "the next build.py begins the installation again", 130, args)
    return 0


@contextmanager
def _locked(project: str) -> Iterator[int]:
    """Hold the checkout's lock: on its directory itself, so that no lock file is left or removed."""
    lock = os.open(project, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another build.py is installing into this checkout; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
    finally:
        os.close(lock)


def _install(project: Path, groups: Sequence[system_packages.Group], lock: int) -> None:
    started = time.monotonic()
    stamp = launcher.read_stamp(str(project))
    had = stamp[2].split() if len(stamp) == 3 else []
    # Groups that an earlier run installed stay: a `build` after a `test` must not undo the tests' packages.
    known = [group for group in system_packages.NEEDS if group in groups or group in had]
    install_system_packages(known, is_root=os.geteuid() == 0)

    venv, stamp_path = project / launcher.VENV, project / launcher.VENV / launcher.STAMP
    keep = len(stamp) == 3 and launcher.has_interpreter(str(project), stamp)
    stamp_path.unlink(missing_ok=True)
    if not keep:
        _say(f"making {venv} with Python {sys.version.split()[0]}")
        # The base interpreter, because this may run in the very environment that is being replaced.
        base = getattr(sys, "_base_executable", None) or sys.executable
        _run([base, "-I", "-m", "venv", "--clear", str(venv)], "make the virtual environment", lock)
    try:
        _pip(project, known, lock)
    except InstallError:
        if keep:  # pip undoes what fails: the environment is as it was, worth another try in place
            _write_stamp(stamp_path, launcher.STALE, stamp[1], had)
        raise
    interpreter = os.path.realpath(launcher.venv_python(str(project)))
    _write_stamp(stamp_path, launcher.fingerprint(str(project)), interpreter, known)
    _say(f"ready after {time.monotonic() - started:.0f} s")


def _pip(project: Path, groups: Sequence[system_packages.Group], lock: int) -> None:
    pip = [launcher.venv_python(str(project)), "-I", "-m", "pip", "--disable-pip-version-check"]
    pip += ["--no-input", "install", "--retries", "3"]
    extras = [group for group in ("unit", "docs", "test") if group in groups]
    tests = " and those of its tests" if "unit" in extras else ""
    compiled = ", and compiling its parts in C" if "compile" in groups else ""
    _say(f"installing Cellblock's Python packages{tests}{compiled} (about half a minute)")
    # The build's own requirements go into the environment too: when a C file changes, compiling it
    # again then takes neither the network nor a throw-away environment.
    _run([*pip, *build_requirements(project)], "install the Python packages that build Cellblock", lock)
    target = f"{project}[{','.join(extras)}]" if extras else str(project)
    # Read by setup.py: without a compiler the parts in C are left out, and without tests what only they load.
    left_out = {} if "compile" in groups else {"CELLBLOCK_WITHOUT_C": "1"}
    if "unit" not in groups:
        left_out["CELLBLOCK_WITHOUT_TESTS"] = "1"
    command = [*pip, "--no-build-isolation", "-e", target]
    _run(command, "install Cellblock and its Python packages", lock, left_out)


def build_requirements(project: Path) -> list[str]:
    """`build-system.requires` of pyproject.toml; Python 3.10 has no TOML reader to ask."""
    text = (project / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r"^requires\s*=\s*\[(.*?)\]", text, re.MULTILINE | re.DOTALL)
    if not found:
        raise InstallError(
            f"{project}/pyproject.toml has no `requires = [...]` under [build-system]\n"
            "  next: run build.py from a whole checkout of Cellblock"
        )
    return re.findall(r'"([^"]+)"', found[1])


def install_system_packages(groups: Sequence[system_packages.Group], *, is_root: bool) -> None:
    """Install what `groups` lack; when not root, fail with the one command that does."""
    if not shutil.which("apt-get"):
        _say("no apt-get here: not checking system packages; `build.py doctor` says what is missing")
        return
    try:
        absent = absent_packages(groups)
    except system_packages.NotOfferedError as error:
        if not is_root:
            raise InstallError(f"{error}\n  next: sudo apt-get update, then run this again") from None
        absent = None  # the package lists may just be empty or old
    nothing_must = absent == []
    if nothing_must and not (is_root and not has_package_lists() and lacks_what_is_optional(groups)):
        return
    if not is_root:
        raise InstallError(not_root_message(absent or []))
    apt = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=600"]
    _say("updating apt's package lists")
    try:
        said = _run([*apt, "update"], "update apt's package lists")
    except InstallError as error:
        if not nothing_must:
            raise
        _say(f"going on without optional packages: {str(error).splitlines()[0]}")
        return
    try:
        absent = absent_packages(groups)
    except system_packages.NotOfferedError as error:
        raise InstallError(not_offered_message(error, said)) from None
    if not absent:
        return
    packages = [package for one in absent for package in one.packages]
    _say(f"installing {len(packages)} system package{'s' if len(packages) > 1 else ''}:")
    for one in absent:
        _say(f"  {' '.join(one.packages)}: {one.why}")
    _run([*apt, "install", "--no-install-recommends", *packages], "install the system packages")


def has_package_lists() -> bool:
    """Whether apt has any list of packages; without one it offers nothing. Images of containers have none."""
    return any(LISTS.glob("*_Packages*"))


def absent_packages(groups: Sequence[system_packages.Group]) -> list[system_packages.Missing]:
    """What this machine lacks for `groups`. Raises `NotOfferedError`."""
    needs = _needs(groups)
    found = system_packages.available(system_packages.names(needs))
    return system_packages.missing(needs, found.installed, found.offered)


def lacks_what_is_optional(groups: Sequence[system_packages.Group]) -> bool:
    """Whether `groups` have an optional need that this machine does not meet."""
    needs = [need for need in _needs(groups) if need.optional]
    installed = system_packages.available(system_packages.names(needs)).installed
    return any(not need.is_met(installed) for need in needs)


def _needs(groups: Sequence[system_packages.Group]) -> list[system_packages.Need]:
    version = (sys.version_info[0], sys.version_info[1])
    interpreter = system_packages.interpreter_needs(
        version,
        has_ensurepip=importlib.util.find_spec("ensurepip") is not None,
        # Only what is compiled needs them.
        has_headers="compile" not in groups or Path(sysconfig.get_path("include"), "Python.h").exists(),
    )
    podman = system_packages.available(["podman"]).offered.get("podman", "")
    return system_packages.needs_of(groups, interpreter, podman)


def not_root_message(absent: Sequence[system_packages.Missing]) -> str:
    """What a user who may not install packages is told: what lacks, why, and the one command."""
    packages = [package for one in absent for package in one.packages]
    lines = ["system packages are missing:"]
    lines += [f"  {' '.join(one.packages)}: {one.why}" for one in absent]
    lines.append(f"  next: sudo apt-get install --no-install-recommends {' '.join(packages)}")
    return "\n".join(lines)


def not_offered_message(error: system_packages.NotOfferedError, said: str) -> str:
    """What root is told of a package that apt does not offer. `said`: the output of apt-get update.

    apt-get update ends with status 0 when no archive can be reached.
    """
    failed = [line for line in said.splitlines() if "Failed to fetch" in line]
    if not failed:
        return f"{error}\n  next: enable the archive component that holds it (on Ubuntu: universe)"
    lines = [f"{error}: apt-get update could not fetch all lists of packages"]
    lines += [f"  | {line}" for line in failed[-TAIL_LINES:]]
    if NO_NETWORK.search(said):
        return "\n".join([*lines, *_NO_NETWORK_NEXT])
    return "\n".join([*lines, "  next: mend what the lines above name in /etc/apt; then run build.py again"])


def _run(
    command: Sequence[str], what: str, lock: int | None = None, variables: Mapping[str, str] | None = None
) -> str:
    """Run a program, with a line now and then on what it does; returns its output.

    On failure it raises `InstallError`, with the program's last lines and its command. `variables` are added
    to its environment.
    `lock` is passed on to it, so that a program that outlives a killed build.py still keeps others out.
    """
    # In English: NO_NETWORK and NO_SPACE know no other language.
    fixed = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    environment = {**os.environ, **fixed, **(variables or {})}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            pass_fds=() if lock is None else (lock,),
        )
    except OSError as error:
        raise InstallError(
            f"cannot {what}: {command[0]}: {error.strerror}\n"
            f"  next: install {command[0]}, then run this again"
        ) from None
    output: list[str] = []
    with process, progress.shown(sys.argv[1:]) as show:
        try:
            for line in process.stdout or ():
                output.append(line)
                show(line)
        except BaseException:  # Ctrl-C: nothing goes on behind it
            process.kill()
            raise
    if process.returncode:
        raise InstallError(
            failure_message(what, command, process.returncode, "".join(output), launcher.PROJECT)
        )
    return "".join(output)


def _is_full(project: str) -> bool:
    """Whether the disk with the environment is: pip's and venv's own words for that are none."""
    return bool(project) and shutil.disk_usage(project).free < FULL_BYTES


def failure_message(what: str, command: Sequence[str], status: int, output: str, project: str = "") -> str:
    """The end of a failed program's output, between what failed and what to do. `project`: the checkout."""
    lines = [f"cannot {what}: {shlex.join(command)} ended with status {status}"]
    lines += [f"  | {line}" for line in output.rstrip().splitlines()[-TAIL_LINES:]]
    if NO_SPACE.search(output) or _is_full(project):
        lines.append(f"  next: free some space (`df -h {project or '/'}`); then run build.py again")
    elif NO_NETWORK.search(output):
        lines += _NO_NETWORK_NEXT
    else:
        lines.append("  next: the lines above say why; build.py tries again from here")
    return "\n".join(lines)


def _write_stamp(path: Path, fingerprint: str, interpreter: str, groups: Sequence[str]) -> None:
    """Say, in one atomic step, what the environment now is."""
    new = path.with_name(path.name + ".new")
    new.write_text(f"{fingerprint}\n{interpreter}\n{' '.join(groups)}\n", encoding="utf-8")
    new.replace(path)


def _say(text: str) -> None:
    failure.inform(text, sys.argv[1:])
