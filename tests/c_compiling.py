# SPDX-License-Identifier: Apache-2.0
"""Compiles C code once for all its tests, for several workers of pytest and for the next run.

The results lie in a folder whose name is a hash of everything that goes in, as ccache does it. A run that was
killed while it compiled leaves a mark, by which its results are thrown away.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cellblock.paths import PROJECT, cache

# Of this machine: tests have caches of their own in the environment.
_CACHE = cache()
_SOURCES = ("native", "spank_jail", "enroot", "pyxis")
_PATTERNS = ("*.[ch]", "Makefile", "*.mk", "*.map")
_KEPT = 3
"""Folders for other states of the sources that stay: of other checkouts, and of the last run."""


def build_folder(sources: Path, variant: str = "") -> Path:
    """Where the Makefile in `sources` has its outputs; `variant` tells apart those that have one name."""
    name = str(sources.resolve().relative_to(PROJECT)).replace("/", "-")
    folder = _compiled() / (f"{name}-{variant}" if variant else name)
    folder.mkdir(exist_ok=True)
    return folder


def make(sources: Path, build: Path, *targets: str) -> subprocess.CompletedProcess[str]:
    """`make TARGETS` in `sources` with outputs in `build`; the test is skipped where tools are missing."""
    for tool in ("make", "gcc"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed: `python3 build.py test` installs it")
    command = ["make", "-C", str(sources), "-j2", f"BUILD={build}", "TOGETHER=1", "WERROR=1", *targets]
    with _alone(build):
        return subprocess.run(command, capture_output=True, text=True, check=False)


def compiled(sources: Path, *targets: str) -> Path:
    """The folder with the outputs of `make TARGETS`, which must succeed."""
    build = build_folder(sources)
    done = make(sources, build, *targets)
    assert done.returncode == 0, done.stdout + done.stderr
    return build


@contextmanager
def _alone(build: Path) -> Iterator[None]:
    """One `make` at a time; what a killed one left in part is removed."""
    mark = build / ".compiling"
    with (build.parent / f"{build.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if mark.exists():
            shutil.rmtree(build)
            build.mkdir()
        _newer_than_sources(build)
        mark.touch()
        yield
        mark.unlink()


@functools.cache
def _newer_than_sources(build: Path) -> None:
    """A checkout of today has files of today, in which is what was compiled yesterday: by its key."""
    now = time.time()
    for path in build.rglob("*"):
        os.utime(path, (now, now))


@functools.cache
def _compiled() -> Path:
    """The folder of this state of the sources."""
    return kept_folder("compiled", _key())


def kept_folder(kind: str, key: str) -> Path:
    """The folder `key` of what tests of one kind make, which nobody removes while this process runs.

    It is in the cache of this machine and stays for the next run; of other keys the last used do, too.
    """
    top = _CACHE / kind
    try:
        top.mkdir(parents=True, exist_ok=True)
        folder = top / key
        folder.mkdir(exist_ok=True)
    except PermissionError:
        return Path(tempfile.mkdtemp(prefix=f"cellblock-{kind}-"))
    # Not closed: the lock lasts as long as the process.
    fcntl.flock(os.open(folder, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)
    os.utime(folder)
    others = sorted((path for path in top.iterdir() if path != folder), key=_last_used)
    for other in others[:-_KEPT]:
        _remove_unused(other)
    return folder


def _last_used(folder: Path) -> float:
    """Seconds since the epoch; 0 when somebody removes it just now."""
    return folder.stat().st_mtime if folder.exists() else 0.0


def _remove_unused(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _key() -> str:
    """Of the sources, the compilers, and what is installed: headers and libraries."""
    digest = hashlib.sha256()
    for compiler in ("gcc", "clang"):
        found = shutil.which(compiler)
        digest.update(subprocess.run([found, "--version"], capture_output=True).stdout if found else b"none")
    installed = Path("/var/lib/dpkg/status")
    digest.update(str(installed.stat().st_mtime_ns).encode() if installed.exists() else b"none")
    for folder in _SOURCES:
        for path in sorted({path for pattern in _PATTERNS for path in (PROJECT / folder).rglob(pattern)}):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(PROJECT)} {content}\n".encode())
    return digest.hexdigest()[:24]
