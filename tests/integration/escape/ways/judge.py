# SPDX-License-Identifier: Apache-2.0
"""Decides how an attack ended, by what is seen outside of the jail or in the job's output."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.escape.arena import WORKER, Arena, Outcome, escaped, held

# Fusectl ends what waits for itself. It has the connections of the whole machine, of other clusters too whose
# tests run beside: of those that a process here has mounted or serves, what has waited for two seconds.
END_ATTACKS = """mkdir -p /run/fusectl && mount -t fusectl none /run/fusectl && cd /run/fusectl &&
{
    for p in /proc/[0-9]*/task/[0-9]*; do echo "$(readlink $p/ns/mnt) $p"; done | sort -u -k1,1 |
        while read -r _ p; do sed -n 's/^[0-9]* [0-9]* 0:\\([0-9]*\\) .* - fuse.*/\\1/p' $p/mountinfo; done
    find /proc/[0-9]*/task/*/fd -lname /dev/fuse |
        while read -r f; do sed -n 's/^fuse_connection:[[:space:]]*//p' ${f%/fd/*}/fdinfo/${f##*/}; done
} 2>/dev/null >/run/fuse-here
for c in $(sort -u /run/fuse-here); do
    grep -qsvx 0 $c/waiting && sleep 2 && grep -qsvx 0 $c/waiting && echo 1 >$c/abort
done
cd / && umount /run/fusectl
for p in /proc/[0-9]*; do
    grep -qsx attack $p/comm $p/task/*/comm || grep -qsza '^/escape/attack$' $p/cmdline && kill -9 ${p#/proc/}
done; true"""


def fresh(arena: Arena) -> Path:
    """An empty folder in the jail for a case's files."""
    return arena.out(uuid.uuid4().hex[:12])


def judge_secret(arena: Arena, text: str, otherwise: str) -> Outcome:
    """Whether `text` has what only a file outside holds."""
    return escaped("the canary was read") if arena.secret in text else held(otherwise)


def judge_mark(arena: Arena, otherwise: str, *folders: str, hostname: str = WORKER) -> Outcome:
    """Whether one of the folders outside has a file with our mark."""
    found = arena.written(*folders, hostname=hostname)
    return escaped(f"{found} was written on {hostname}") if found else held(otherwise)


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else "no word"


@contextmanager
def changed(path: Path, text: str) -> Iterator[None]:
    """A file of the jail with another text for a while; one that was not there is gone afterwards."""
    before = path.read_bytes() if path.exists() else None
    path.write_text(text)
    try:
        yield
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_bytes(before)
