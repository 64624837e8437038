# SPDX-License-Identifier: Apache-2.0
"""Reads sizes and times of cluster files, such as 8Gi and 7d, as MiB, seconds and Slurm's own times."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d{1,9})(Mi|Gi|Ti)")
_MIB = {"Mi": 1, "Gi": 2**10, "Ti": 2**20}
_TIME = re.compile(r"(\d{1,5})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def mebibytes(size: str) -> int:
    """MiB of a size such as 512Mi, 8Gi or 1Ti. Raises ValueError for anything else, and for none at all."""
    found = _SIZE.fullmatch(size)
    if not found or int(found[1]) == 0:
        raise ValueError(f"'{size}' is no size: a number and Mi, Gi or Ti, as in 8Gi")
    return int(found[1]) * _MIB[found[2]]


def seconds(time: str) -> int:
    """Seconds of a time such as 30m or 7d. Raises ValueError for anything else, and for none at all."""
    found = _TIME.fullmatch(time)
    if not found or int(found[1]) == 0:
        raise ValueError(f"'{time}' is no time: a number and s, m, h, d or w, as in 7d")
    return int(found[1]) * _SECONDS[found[2]]


def slurm_time(time: str) -> str:
    """What slurm.conf calls a time such as 30m or 7d: days-hours:minutes:seconds. `unlimited` is INFINITE.

    Raises ValueError for anything else.
    """
    if time == "unlimited":
        return "INFINITE"
    try:
        days, rest = divmod(seconds(time), 86400)
    except ValueError as error:
        raise ValueError(f"{error}, or unlimited") from error
    return f"{days}-{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
