# SPDX-License-Identifier: Apache-2.0
"""Exchanges a file of the jail as a hostile user would, just before the Nth call to the filesystem.

`Moments` counts the calls of Python's os module and of renameat2(2). At the moment asked for, the file is
exchanged for what an attacker would put there, by one renameat2(2), and where wanted put back before the next
call. It notes each descriptor that was opened of a FIFO or a device: such an open may wait, or start more.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deb_trees import Deb
from jail_trees import snapshot
from upgraded_jail import BAR, Jail

from cellblock.jail.assemble import assemble
from cellblock.jail.tree import rename_exchange

SECRET = "only the host knows this"
EVIL = (
    "link",
    "folder link",
    "dangling link",
    "fifo",
    "folder",
    "device",
    "socket",
    "other file",
    "hard link",
)

_COUNTED = (
    *(
        "open",
        "stat",
        "lstat",
        "fstat",
        "readlink",
        "listxattr",
        "getxattr",
        "setxattr",
        "removexattr",
        "chown",
    ),
    *("chmod", "utime", "rename", "link", "unlink", "rmdir", "mkdir", "listdir", "scandir", "read"),
)
_libc = ctypes.CDLL(None, use_errno=True)


class Outside:
    """Files of the host beside the volume, which nothing may touch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "shadow").write_text(SECRET)
        (folder / "shadow").chmod(0o600)
        (folder / "data").write_text(SECRET)
        self._before = self._seen()

    def _seen(self) -> dict[bytes, tuple[object, ...]]:
        return snapshot(self.folder)

    def check(self, volume: Path) -> None:
        """Nothing changed here, and nothing of it is in the volume."""
        assert self._seen() == self._before
        found = subprocess.run(
            ["grep", "-rlaF", "--devices=skip", SECRET, str(volume)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.stdout == ""


def make_evil(kind: str, place: Path, outside: Outside, root: Path) -> None:
    """What is put in the place of a file."""
    if kind == "link":
        place.symlink_to(outside.folder / "shadow")
    elif kind == "folder link":
        place.symlink_to(outside.folder)
    elif kind == "dangling link":
        place.symlink_to(outside.folder / "made")
    elif kind == "fifo":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
        (place / "theirs").write_text("theirs")
    elif kind == "device":
        os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero: it never ends
    elif kind == "socket":
        os.mknod(place, stat.S_IFSOCK | 0o666)
    elif kind == "hard link":
        os.link(root / "etc/bar.conf", place)
    else:
        place.write_text("another of theirs")


class Moments:
    """Exchanges `one` and `other` before the call number `moment`; `back` before the next one, too."""

    def __init__(self, one: Path, other: Path, moment: int, *, back: bool) -> None:
        self.paths = os.fsencode(one), os.fsencode(other)
        self.moment, self.back = moment, back
        self.count = 0
        self.opened: list[str] = []

    def _swap(self) -> None:
        _libc.renameat2(-100, self.paths[0], -100, self.paths[1], ctypes.c_uint(2))

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, as a moment."""

        def call(*arguments: Any, **options: Any) -> Any:
            if self.count == self.moment or (self.back and self.count == self.moment + 1):
                self._swap()
            self.count += 1
            return function(*arguments, **options)

        return call

    def _open(self, path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        descriptor = os_open(path, flags, *arguments, **options)
        mode = os_fstat(descriptor).st_mode
        # Python opens the host's /dev/null itself when it starts a program, such as ldconfig, without input.
        is_special = not stat.S_ISREG(mode) and not stat.S_ISDIR(mode) and path != os.devnull
        if is_special and not flags & os.O_PATH:
            self.opened.append(str(path))
        return descriptor

    @contextmanager
    def counting(self) -> Iterator[None]:
        """In this block the calls are counted."""
        with pytest.MonkeyPatch.context() as patch:
            for name in _COUNTED:
                patch.setattr(os, name, self.counted(self._open if name == "open" else getattr(os, name)))
            patch.setattr(rename_exchange, "_rename", self.counted(rename_exchange._rename))
            yield


os_open, os_fstat = os.open, os.fstat


def some_moments(total: int, samples: int, seed: int) -> list[int]:
    """Some of the moments, others for each seed, the same each time; 0 samples: all of them."""
    if not samples or total <= samples:
        return list(range(total))
    return [(seed * 7919 + number * total // samples) % total for number in range(samples)]


def _waited(*_: object) -> None:
    raise TimeoutError("a command waits for something of users")


@contextmanager
def ending_well(case: str, limit_s: int) -> Iterator[None]:
    """The block raises nothing; what waits for a FIFO fails after `limit_s` seconds, and does not hang."""
    before = signal.signal(signal.SIGALRM, _waited)
    signal.alarm(limit_s)
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{case}: {type(error).__name__}: {error}") from error
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


FOO = Deb("foo", "1", {"usr/share/foo/mode": "the same", "usr/lib/libfoo.so": "one"})
FOO2 = Deb(
    "foo", "2", {"usr/share/foo/mode": "the same", "usr/lib/libfoo.so": "two", "usr/share/foo/new/one": "1"}
)


def prepared(folder: Path) -> Jail:
    """A jail that can be upgraded, with users' work in it."""
    jail = Jail(folder)
    old = jail.image("old", FOO, BAR)
    new = jail.image("new", FOO2, BAR)
    for tree, mode in ((old, 0o644), (new, 0o4755)):
        (tree.root / "usr/share/foo/mode").chmod(mode)
        os.utime(tree.root / "usr/share/foo/mode", ns=(10**18, 10**18))
        (tree.root / "etc/kind").symlink_to(str(mode))
    assemble(str(old.root), jail.path, jail.events)
    jail.write("etc/passwd", jail.read("etc/passwd") + "ada:x:1000:1000::/home/ada:/bin/sh\n")
    jail.write("home/ada/work", "hers")
    return jail


def copy(jail: Jail, folder: Path) -> Path:
    """A copy of its volume."""
    if folder.exists():
        shutil.rmtree(folder)
    subprocess.run(["cp", "-a", str(jail.path), str(folder)], check=True)
    return folder
