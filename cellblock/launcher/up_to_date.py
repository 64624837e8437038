# SPDX-License-Identifier: Apache-2.0
"""Remembers that a build has nothing to do, so that Cellblock need not be imported to find that out.

After a build, the metadata of every file that shaped it is recorded under the command line: size, times
of change and of content, inode, mode. There is nothing to do if the same command line comes again, none of
them has changed, and the images' blobs exist. Any doubt leads to a whole build, which compares contents.

Standard library only, and as little as possible: `build.py` asks this before it executes the virtual
environment's Python in its own place.
"""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_FORMAT = "cellblock unchanged 2"
# Options that change nothing about what is built, or select it: others always run a build.
_PLAIN = ("--locked", "--load")
_WITH_VALUE = ("-v", "--variant", "--mirror", "--log", "--images")
_ENVIRONMENT = ("SOURCE_DATE_EPOCH", "CELLBLOCK_CACHE", "CELLBLOCK_STATE")


def is_simple(args: list[str]) -> bool:
    """Whether `args` (without "build") ask for nothing but images."""
    rest = iter(args)
    for arg in rest:
        if arg in _WITH_VALUE:
            value = next(rest, "")
            if arg == "--log" and value not in ("auto", "plain"):
                return False
        elif arg.startswith("-") and arg not in _PLAIN:
            return False
    return True


def cached_answer(project: str, args: list[str]) -> str | None:
    """What to print for `build.py build ARGS` when nothing changed since it was done; None to build."""
    stamp = _stamp(project, args)
    try:
        with open(stamp, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
            head, text, *lines = file.read().split("\n")
    except (OSError, ValueError):
        return None
    if head != _head() or not lines or lines[-1]:
        return None
    for line in lines[:-1]:
        state, _, path = line.partition(" ")
        if state != _state(path):
            return None
    with contextlib.suppress(OSError):
        os.utime(stamp)  # for `used`
    return text


def used(cache: str) -> dict[str, float]:
    """When builds of each variant were last asked for with nothing to do, in seconds since the epoch."""
    found: dict[str, float] = {}
    folder = f"{cache}/unchanged"
    for name in os.listdir(folder) if os.path.isdir(folder) else ():  # noqa: PTH112,PTH208
        try:
            with open(f"{folder}/{name}", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
                variant = file.readlines(200)[1].partition(":")[0]
            found[variant] = max(found.get(variant, 0.0), os.stat(f"{folder}/{name}").st_mtime)  # noqa: PTH116
        except (OSError, ValueError, IndexError):
            continue
    return found


def remember(project: str, args: list[str], text: str, states: dict[str, str]) -> None:
    """Note that `text` is what to print for ARGS while all files of `states` are as they are.

    `text` is "VARIANT: ...".
    """
    path = _stamp(project, args)
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103,PTH120
    part = f"{path}.{os.getpid()}"
    with open(part, "w", encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
        file.write("\n".join([_head(), text, *(f"{state} {name}" for name, state in states.items())]) + "\n")
    os.replace(part, path)  # noqa: PTH105


def states_of(paths: Iterable[str]) -> dict[str, str]:
    """What is told apart of each path, and of all below those that are folders."""
    states: dict[str, str] = {}
    for path in paths:
        if "\n" in path:
            continue
        states[path] = _state(path)
        if os.path.islink(path):  # noqa: PTH114
            target = os.path.realpath(path)
            # A folder that a link leads back into is being looked at already.
            if not path.startswith(f"{target}/") and target not in states:
                states.update(states_of([target]))
        elif os.path.isdir(path):  # noqa: PTH112
            names = sorted(os.listdir(path))  # noqa: PTH208
            states.update(states_of(f"{path}/{name}" for name in names if name != "__pycache__"))
    return states


def _head() -> str:
    """A boot looks at what was written before it (cellblock.store.after_boot)."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
            return f"{_FORMAT} {file.read().strip()}"
    except OSError:
        return _FORMAT


def _state(path: str) -> str:
    try:
        status = os.lstat(path)
    except OSError:
        return "-"
    if status.st_mode & 0o170000 == 0o040000:
        # A folder's size and link count follow from its entries; Python's cache comes and goes.
        return f"d{status.st_mode}:{_names(path)}"
    return f"{status.st_mtime_ns}:{status.st_ctime_ns}:{status.st_size}:{status.st_ino}:{status.st_mode}"


def _names(path: str) -> int:
    """A number that changes when a name in the folder appears or goes."""
    import zlib

    names = sorted(name for name in os.listdir(path) if name != "__pycache__")  # noqa: PTH208
    return zlib.crc32("\0".join(names).encode("utf-8", "surrogateescape"))


def _stamp(project: str, args: list[str]) -> str:
    import hashlib

    # A folder that is named may begin where the command is typed.
    here = [os.getcwd()] if "--images" in args else []  # noqa: PTH109
    said = [project, *here, *args, *(os.environ.get(name, "") for name in _ENVIRONMENT)]
    cache = os.environ.get("CELLBLOCK_CACHE", "/var/cache/cellblock")
    digest = hashlib.sha256("\0".join(said).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{cache}/unchanged/{digest[:32]}"
