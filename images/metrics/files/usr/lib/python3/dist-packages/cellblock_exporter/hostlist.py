# SPDX-License-Identifier: Apache-2.0
"""Expands Slurm's lists of hosts, such as `gpu-[1-3,07],login`, into names."""

from __future__ import annotations

import re
from functools import lru_cache

# Hosts that one list may name: more nodes than Slurm has in a cluster.
_MOST = 70_000
_PART = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_BRACKETS = re.compile(r"\[([^\]]*)\]")


# Jobs of an array have the same few lists.
@lru_cache(maxsize=4096)
def expand(text: str) -> frozenset[str]:
    """The hosts that `text` names. Raises ValueError for what is no list of hosts."""
    if text in ("", "(null)", "None", "N/A"):
        return frozenset()
    names: set[str] = set()
    for part in _PART.findall(text):
        names.update(_expand_part(part))
        if len(names) > _MOST:
            raise ValueError(f"a list of more than {_MOST} hosts")
    return frozenset(names)


def _expand_part(part: str) -> list[str]:
    found = _BRACKETS.search(part)
    if found is None:
        return [part]
    heads = [part[: found.start()] + number for number in _numbers(found[1])]
    tails = _expand_part(part[found.end() :]) if found.end() < len(part) else [""]
    if len(heads) * len(tails) > _MOST:
        raise ValueError(f"a list of more than {_MOST} hosts")
    return [head + tail for head in heads for tail in tails]


def _numbers(ranges: str) -> list[str]:
    numbers: list[str] = []
    for one in ranges.split(","):
        first, _, last = one.partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            raise ValueError(f"'{one}' is no range of hosts")
        start, end = int(first), int(last or first)
        if end - start > _MOST:
            raise ValueError(f"a list of more than {_MOST} hosts")
        numbers += [str(number).zfill(len(first)) for number in range(start, end + 1)]
    return numbers
