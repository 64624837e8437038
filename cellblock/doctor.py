# SPDX-License-Identifier: Apache-2.0
"""Finds out what this machine can and cannot do, and what to install, for `build.py doctor`.

It only looks: nothing is installed, mounted, started or loaded. Features are tried, not derived from
version numbers: distributions backport and containers take away.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cellblock import paths
from cellblock.launcher import install as launcher_install
from cellblock.launcher import system_packages
from cellblock.machine.host import host_release
from cellblock.machine.node_settings import PROC_SYS, USER_NAMESPACES, check_settings

Verdict = Literal["ok", "warning", "missing"]

PROGRAMS = ("buildah", "podman", "runc", "mmdebstrap", "skopeo", "zstd")

# Numbers of new system calls are the same on all architectures.
_SYSTEM_CALLS = {
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsmount": 432,
    "openat2": 437,
    "mount_setattr": 442,
}
_KEYRINGS = {
    "debian": Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    "ubuntu": Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg"),
}
_SOCKETS = {"podman": Path("/run/podman/podman.sock"), "docker": Path("/run/docker.sock")}

# The images of one variant take 5 GB in the storage while they are built, the jail on its volume 1.5.
_DISK_GB = 8
# Two slurmd, slurmctld and sshd take 300 MB; apt and dpkg in an image's build 700 MB on top.
_MEMORY_GB = 2


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `missing` means that `up` cannot run; `advice` is the next step."""

    subject: str
    verdict: Verdict
    found: str
    advice: str = ""


def examine() -> list[Finding]:
    """Look at everything, in the order in which `up` would need it."""
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (
        _user,
        _devices,
        _packages,
        _programs,
        _kernel,
        _settings,
        _cgroups,
        _sockets,
        _space,
        _keyrings,
    )
    return [finding for check in checks for finding in check()]


def can_run_up(findings: list[Finding]) -> bool:
    """Whether nothing that `up` needs is missing."""
    return all(finding.verdict != "missing" for finding in findings)


def _user() -> Iterator[Finding]:
    if os.geteuid() == 0:
        yield Finding("user", "ok", "root")
    else:
        yield Finding("user", "missing", f"uid {os.geteuid()}", "images and the jail need root: use sudo")


def _devices() -> Iterator[Finding]:
    # Seen on a real machine: apt's own user cannot open it, and what apt then says is "gpgv not found".
    mode = os.stat("/dev/null").st_mode  # noqa: PTH116
    if stat.S_ISCHR(mode) and mode & 0o666 == 0o666:
        yield Finding("/dev/null", "ok", "everybody may use it")
    else:
        found = f"mode {stat.S_IMODE(mode):o}" if stat.S_ISCHR(mode) else "no device"
        advice = "apt cannot verify archives: chmod 666 /dev/null"
        if not stat.S_ISCHR(mode):
            advice = "rm /dev/null && mknod -m 666 /dev/null c 1 3"
        yield Finding("/dev/null", "missing", found, advice)


def _packages() -> Iterator[Finding]:
    if not shutil.which("apt-get"):
        yield Finding(
            "packages", "warning", "no apt here", "Cellblock knows Debian 12-14, Ubuntu 22.04-26.04"
        )
        return
    wanted: tuple[tuple[tuple[str, ...], Verdict], ...] = (
        (("python", "compile", "core"), "missing"),
        (("test",), "warning"),
    )
    for groups, verdict in wanted:
        try:
            absent = launcher_install.absent_packages(groups)
        except system_packages.NotOfferedError as error:
            yield Finding("packages", verdict, str(error), "apt-get update; on Ubuntu enable universe")
            continue
        names = [name for one in absent for name in one.packages]
        subject = "packages of tests" if groups == ("test",) else "packages"
        if names:
            advice = f"apt-get install --no-install-recommends {' '.join(names)}"
            yield Finding(subject, verdict, f"{len(names)} missing", advice)
        else:
            yield Finding(subject, "ok", "all installed")


def _programs() -> Iterator[Finding]:
    for program in PROGRAMS:
        if not shutil.which(program):
            yield Finding(program, "missing", "not found", f"apt-get install {program}")
            continue
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
            said = lines[-1] if lines else f"status {done.returncode}"
            again = f"apt-get install --reinstall {program}"
            yield Finding(program, "missing", f"does not work: {said}", again)
            continue
        version = re.search(r"\d+\.\d+[^\s,]*", done.stdout + done.stderr)
        yield Finding(program, "ok", version[0] if version else "version unknown")


def _kernel() -> Iterator[Finding]:
    release = os.uname().release
    answers = {name: probe_system_call(number) for name, number in _SYSTEM_CALLS.items()}
    absent = [name for name, answer in answers.items() if answer == errno.ENOSYS]
    refused = [name for name, answer in answers.items() if answer == errno.EPERM]
    if absent:
        advice = "the jail needs Linux 5.12 or newer"
        yield Finding("mount calls", "missing", f"Linux {release} lacks {', '.join(absent)}", advice)
    elif refused and os.geteuid() == 0:
        advice = "not root of this machine: a container without SYS_ADMIN, or a seccomp filter"
        yield Finding("mount calls", "missing", f"{', '.join(refused)}: not permitted", advice)
    else:
        unsure = " (not tried without root)" if refused else ""
        yield Finding("mount calls", "ok", f"Linux {release} has {', '.join(answers)}{unsure}")
    yield _overlay(release)


def _settings() -> Iterator[Finding]:
    for one in check_settings(PROC_SYS):
        name = one.setting.name
        if one.safe:
            yield Finding(name, "ok", one.why or one.setting.shown(one.value))
        else:
            # Without a user namespace `up` fails; the others are advice.
            verdict: Verdict = "missing" if one.setting is USER_NAMESPACES else "warning"
            yield Finding(name, verdict, one.setting.shown(one.value), one.setting.advice)


def probe_system_call(number: int) -> int:
    """The error of a system call whose arguments are all wrong: ENOSYS says that there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    wrong = ctypes.c_long(-1)
    if libc.syscall(ctypes.c_long(number), wrong, None, wrong, None, wrong) >= 0:
        return 0
    return ctypes.get_errno()


def _overlay(release: str) -> Finding:
    if "overlay" in _text("/proc/filesystems").split():
        return Finding("overlay", "ok", "in the kernel")
    if any(Path(f"/lib/modules/{release}/kernel/fs/overlayfs").glob("overlay.ko*")):
        return Finding("overlay", "ok", "a module, loaded on first use")
    return Finding("overlay", "missing", "not in this kernel", "podman and buildah store images with it")


def _cgroups() -> Iterator[Finding]:
    controllers = _text("/sys/fs/cgroup/cgroup.controllers").split()
    if controllers:
        yield Finding("cgroups", "ok", f"version 2: {' '.join(controllers)}")
    else:
        advice = "the cluster runs with CgroupPlugin=disabled: jobs are not confined"
        yield Finding("cgroups", "warning", "no version 2", advice)


def _sockets() -> Iterator[Finding]:
    for name, path in _SOCKETS.items():
        yield _socket(name, path)


def _socket(name: str, path: Path) -> Finding:
    subject = f"{name} API"
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2)
        try:
            client.connect(str(path))
        except FileNotFoundError:
            # None is missed: `up` starts podman's for its own use, and Docker is only used when asked for.
            return Finding(
                subject, "ok", "not running; `up` starts its own" if name == "podman" else "not here"
            )
        except OSError as error:
            return Finding(subject, "warning", f"{path}: {error.strerror}", f"is {name}'s service running?")
    return Finding(subject, "ok", str(path))


def _space() -> Iterator[Finding]:
    folders = {"state": paths.state(), "cache": paths.cache(), "images": Path("/var/lib/containers")}
    for name, folder in folders.items():
        free = shutil.disk_usage(_existing(folder)).free / 1e9
        if free >= _DISK_GB:
            yield Finding(f"disk for {name}", "ok", f"{free:.0f} GB free at {folder}")
        else:
            advice = f"a variant takes about {_DISK_GB} GB"
            yield Finding(f"disk for {name}", "warning", f"{free:.1f} GB free at {folder}", advice)
    available = re.search(r"MemAvailable:\s+(\d+)", _text("/proc/meminfo"))
    memory = int(available[1]) * 1024 / 1e9 if available else 0.0
    if memory >= _MEMORY_GB:
        yield Finding("memory", "ok", f"{memory:.1f} GB available")
    else:
        advice = f"building and the local cluster take about {_MEMORY_GB} GB"
        yield Finding("memory", "warning", f"{memory:.1f} GB available", advice)


def _existing(folder: Path) -> Path:
    """The nearest directory that exists: what is not made yet will lie on its filesystem."""
    while not folder.exists():
        folder = folder.parent
    return folder


def _keyrings() -> Iterator[Finding]:
    host = host_release()
    family = "ubuntu" if "ubuntu" in (host.get("ID", ""), *host.get("ID_LIKE", "").split()) else "debian"
    for name, path in _KEYRINGS.items():
        if path.exists():
            yield Finding(f"keyring of {name}", "ok", str(path))
        else:
            package = "ubuntu-keyring" if name == "ubuntu" else "debian-archive-keyring"
            verdict: Verdict = "missing" if name == family else "warning"
            advice = f"apt-get install {package}, or {name} images cannot be built"
            yield Finding(f"keyring of {name}", verdict, "not here", advice)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
