# SPDX-License-Identifier: Apache-2.0
"""Mounts root filesystems for builds: layers' trees under an overlay, in which programs make one more layer.

A tree is a folder in overlayfs' own form (kernel Documentation/filesystems/overlayfs.rst): what a layer
adds, with character devices 0:0 for what it removes. The overlay is mounted in the namespace of the
program that runs in it and nowhere else; the kernel takes it down with the program.

What a crash leaves is a working folder that nobody owns (`cellblock.store.work_folders`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import IO

from cellblock.bind_mount import BindMount
from cellblock.errors import CellblockError
from cellblock.process import Finished, ProgramFailed, Programs

# UPPER holds whole files under their own names, and so is a layer.
_PLAIN = "metacopy=off,redirect_dir=off,index=off"

MARK = "/tmp/marked"
"""A file in a root's /tmp, which is no part of a layer."""

_FAILED = "tmp/.cellblock-failed"
"""Below a root's folder, and so in its /tmp: the number of the line that failed."""
_NUMBER = "cellblock_line"

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class FailedInRoot(ProgramFailed):
    """Shell lines failed in `root`. `line` is the number of the one that did, counted from 0, when known."""

    def __init__(self, finished: Finished, root: WorkingRoot, line: int | None) -> None:
        super().__init__(finished)
        self.root = root
        self.line = line
        self.where = ""
        """Where a definition has that line, and how it begins; said by whoever knows the definition."""


class WorkingRoot:
    """A root whose lower layers are `trees` (the lowest first); what programs write is in `upper`."""

    def __init__(
        self, folder: Path, trees: Sequence[Path], programs: Programs, env: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.env = dict(env or {})
        self.upper = folder / "upper"
        self._mark = folder / MARK.lstrip("/")
        self.trees = tuple(trees)
        if re.search(r"""[\s:,"'\\]""", str(folder)):
            raise CellblockError(
                f"{folder}: blanks, quotes, colons and commas in a path cannot be given to mount(8) and apt",
                hint="set CELLBLOCK_CACHE to a folder without them",
            )
        self._programs = programs
        self._mounts = 0
        self._scripts = 0
        self.upper.mkdir(parents=True)
        self.upper.chmod(0o755)
        (folder / "root").mkdir()
        (folder / "tmp").mkdir()
        (folder / "tmp").chmod(0o1777)
        # Short names for mount(8), the topmost first.
        (folder / "layers").mkdir()
        for number, tree in enumerate(reversed(self.trees)):
            (folder / "layers" / str(number)).symlink_to(tree.absolute())
        if not self.trees:
            # An overlay over nothing: volatile, it spares the syncs of what runs in it.
            (folder / "layers" / "0").mkdir()

    def mark(self) -> None:
        """Touch a file that programs in the root know as MARK."""
        self._mark.touch()

    def marked(self) -> int:
        """When MARK was touched last, in nanoseconds since the epoch."""
        return self._mark.stat().st_mtime_ns

    def run(
        self,
        lines: Sequence[str],
        *,
        binds: Sequence[BindMount] = (),
        env: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
        feed: Callable[[IO[bytes]], None] | None = None,
        numbered: bool = False,
    ) -> Finished:
        """Run shell lines with `sh -euc` inside; `feed` writes their stdin.

        `numbered`: each line is whole commands, so that it can be told which one failed. Raises
        FailedInRoot, Interrupted, and what `feed` raises.
        """
        # An argument ends at 128 KiB (MAX_ARG_STRLEN, execve(2)), standard input may be fed, and
        # a file in the root would be seen there: a descriptor, closed as soon as the shell has its own.
        self._scripts += 1
        script = self.folder / f"script-{self._scripts}"
        text = [*_with_numbers(lines)] if numbered else lines
        script.write_text("exec 9<&-\n" + "\n".join(text) + "\n", encoding="utf-8")
        (self.folder / _FAILED).unlink(missing_ok=True)
        opened = ("sh", "-c", 'exec 9<"$1"; shift; exec "$@"', "sh", str(script))
        argv = self.command(["sh", "-euc", ". /dev/fd/9"], binds, env)
        try:
            return self._programs.run([*opened, *argv], on_line=on_line, feed=feed)
        except ProgramFailed as error:
            raise FailedInRoot(error.finished, self, self._failed_line()) from error

    def _failed_line(self) -> int | None:
        try:
            return int((self.folder / _FAILED).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None  # ended by a signal, or lines without numbers

    def command(
        self, argv: Sequence[str], binds: Sequence[BindMount] = (), env: Mapping[str, str] | None = None
    ) -> list[str]:
        """The arguments that run `argv` inside: a person can repeat them."""
        # An overlay that was mounted volatile refuses its work folder the next time (overlayfs.rst).
        self._mounts += 1
        work = self.folder / f"work-{self._mounts}"
        work.mkdir()
        lower = ":".join(str(number) for number in range(len(self.trees) or 1))
        script = str(files("cellblock.build").joinpath("in_root.sh"))
        mounted = [f"{bind.source}:{bind.target}:{'rw' if bind.writable else 'ro'}" for bind in binds]
        environment = {"PATH": PATH, "HOME": "/root", "LC_ALL": "C.UTF-8", **self.env, **(env or {})}
        return [
            *("unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "bash", script),
            *(lower, str(self.upper), str(work), str(self.folder / "root"), str(self.folder / "tmp")),
            *(*mounted, "--"),
            *("env", "-i", *(f"{name}={value}" for name, value in environment.items()), *argv),
        ]

    def enter_script(self, place: Path) -> str:
        """A script that opens a shell in this root, or runs what it is given, when its folder is `place`."""
        environment = {"PATH": PATH, "HOME": "/root", "LC_ALL": "C.UTF-8", **self.env}
        lower = ":".join(str(number) for number in range(len(self.trees) or 1))
        quoted = " ".join(shlex.quote(f"{name}={value}") for name, value in environment.items())
        in_root = shlex.quote(str(files("cellblock.build").joinpath("in_root.sh")))
        return (
            "#!/bin/sh\n"
            "# Opens a shell in the root of a step that failed, or runs a program there.\n"
            "set -eu\n"
            f"here={shlex.quote(str(place))}\n"
            'work=$(mktemp -d "$here/work-XXXXXX")\n'
            "[ $# -gt 0 ] || set -- /bin/sh\n"
            f"exec unshare --mount --pid --ipc --uts --fork --kill-child bash {in_root} {lower} \\\n"
            '  "$here/upper" "$work" "$here/root" "$here/tmp" -- \\\n'
            f'  env -i "TERM=${{TERM:-dumb}}" {quoted} "$@"\n'
        )

    def reading(self, argv: Sequence[str]) -> list[str]:
        """The arguments that run `argv`, of this machine, while `root` shows the layers, read-only."""
        lower = ":".join(str(number) for number in range(len(self.trees)))
        options = f"ro,lowerdir={lower},{_PLAIN}"
        if len(self.trees) == 1:
            line = 'mount --bind "$1/layers/0" "$1/root"; shift 2; exec "$@"'
        else:
            line = 'cd "$1/layers"; mount -t overlay overlay -o "$2" "$1/root"; cd /; shift 2; exec "$@"'
        return ["unshare", "--mount", "sh", "-euc", line, "sh", str(self.folder), options, *argv]

    def around(self, argv: Sequence[str]) -> list[str]:
        """The arguments that run `argv`, a program of this machine that fills the empty folder `root`.

        An overlay over nothing: volatile, it spares the program's syncs, which take most of a bootstrap.
        """
        empty, work = self.folder / "empty", self.folder / "work-0"
        empty.mkdir()
        work.mkdir()
        mounts = f"lowerdir={empty},upperdir={self.upper},workdir={work},volatile,{_PLAIN}"
        mount = 'mount -t overlay overlay -o "$1" "$2"; shift 2; exec "$@"'
        unshare = ("unshare", "--mount", "sh", "-euc", mount, "sh")
        return [*unshare, mounts, str(self.folder / "root"), *argv]


def _with_numbers(lines: Sequence[str]) -> Iterator[str]:
    """`lines`, which leave the number of the one that fails in a file; their status stays what it is."""
    yield f"trap 'test $? = 0 || echo \"${_NUMBER}\" > /{_FAILED}' EXIT"
    for number, line in enumerate(lines):
        yield f"{_NUMBER}={number}"
        yield line
