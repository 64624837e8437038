# SPDX-License-Identifier: Apache-2.0
"""Reads which nodes slurmctld wants, from a folder that its container shares, and answers there.

wanted/NODE   `up TOKEN`, `serves TOKEN` or `down TOKEN`: what Slurm wants, since the file's time. A new
              request has a new token; the node of one that is fulfilled serves, under the same.
told/NODE     `TOKEN REASON`: the request with this token cannot be fulfilled, and why
fresh         its time: when wanted/ was last compared with what slurmctld says

All are replaced by rename.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

# Names of nodes, as cluster files have them. Temporary files begin with a dot.
_NODE = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_STATES = ("up", "serves", "down")
# Slurm keeps longer ones, and cuts them in what it shows.
_LONGEST_REASON = 300


@dataclass(frozen=True)
class NodeRequest:
    """What Slurm wants of a node, since `since` (seconds of the epoch)."""

    state: Literal["up", "serves", "down"]
    token: str
    since: float


@dataclass(frozen=True)
class NodeRequests:
    """What Slurm wants of all nodes; `age_s` is how long ago slurmctld was last asked, None for never."""

    nodes: Mapping[str, NodeRequest]
    told: Mapping[str, str]
    """Node -> token of the request that was given up, and of which slurmctld is yet to hear."""
    age_s: float | None


def read_requests(folder: Path, now: float) -> NodeRequests:
    """What the folder says. A file that goes meanwhile, or holds anything else, is no request."""
    nodes = {}
    for name, path in _files(folder / "wanted"):
        try:
            since = path.stat().st_mtime
            words = path.read_text(encoding="ascii").split()
        except (OSError, ValueError):
            continue
        if len(words) == 2 and words[0] in _STATES:
            nodes[name] = NodeRequest(cast(Literal["up", "serves", "down"], words[0]), words[1], since)
    told = {}
    for name, path in _files(folder / "told"):
        try:
            told[name] = path.read_text(encoding="utf-8").partition(" ")[0]
        except (OSError, ValueError):
            continue
    try:
        age = max(now - (folder / "fresh").stat().st_mtime, 0.0)
    except OSError:
        return NodeRequests(nodes, told, None)
    return NodeRequests(nodes, told, age)


def last_change(folder: Path) -> int:
    """A number that changes with each request."""
    try:
        return (folder / "wanted").stat().st_mtime_ns
    except OSError:
        return 0


def tell(folder: Path, node: str, token: str, reason: str) -> None:
    """Write down that the request `token` of `node` is given up. Raises OSError."""
    place = folder / "told"
    place.mkdir(parents=True, exist_ok=True)
    new = place / f".{node}.{os.getpid()}"
    new.write_text(f"{token} {one_line(reason)}\n", encoding="utf-8")
    new.replace(place / node)


def one_line(text: str) -> str:
    """`text` as one line of plain characters: it ends in a command's argument and in Slurm's records."""
    words = "".join(one if " " <= one <= "~" and one not in "\"'`\\|[]" else " " for one in text).split()
    line = " ".join(words)
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 3]}..."


def _files(folder: Path) -> list[tuple[str, Path]]:
    try:
        return [(path.name, path) for path in folder.iterdir() if _NODE.fullmatch(path.name)]
    except OSError:
        return []
