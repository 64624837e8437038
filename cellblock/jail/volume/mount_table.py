# SPDX-License-Identifier: Apache-2.0
"""Reads the mounts that a process sees, from /proc/PID/mountinfo (proc(5))."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ESCAPED = re.compile(r"\\([0-7]{3})")
"""White space and backslashes."""


@dataclass(frozen=True)
class Mount:
    """A mount: its filesystem (`device`, major:minor, and `kind`), the part of it, and where that shows.

    `options` are those of the filesystem, as its kind writes them: an overlay names its layers there.
    """

    device: str
    root: str
    point: str
    kind: str = ""
    options: str = ""


def mounts_of(process: Path) -> Iterator[Mount]:
    """List the mounts of the process whose folder in /proc this is; none when it has ended."""
    try:
        lines = (process / "mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(" "), [*after.split(" ", 2), "", ""][:3]
        yield Mount(fields[2], unescaped(fields[3]), unescaped(fields[4]), kind, options)


def unescaped(text: str) -> str:
    """Return a field of mountinfo as it was before it was written."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)
