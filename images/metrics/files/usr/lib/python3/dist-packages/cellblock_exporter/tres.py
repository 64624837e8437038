# SPDX-License-Identifier: Apache-2.0
"""Parses trackable resources as Slurm writes them, such as `cpu=2,mem=10846M,node=1,gres/gpu=4`."""

from __future__ import annotations

import re

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
_VALUE = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)")
_GPU = re.compile(r"gpu(?::[A-Za-z][^,:(]*)?:(\d+)")


def parse(text: str) -> dict[str, int]:
    """Resource -> amount; memory in bytes. What is no amount is left out."""
    amounts = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        found = _VALUE.fullmatch(value)
        if found:
            # Memory without a unit is MiB; numbers of others may be in thousands of 1024, too.
            unit = found[2] or ("M" if name == "mem" else "")
            amounts[name] = round(float(found[1]) * _UNITS[unit])
    return amounts


def gpus(tres: dict[str, int], gres: str) -> int:
    """GPUs by `tres`, or where Slurm does not track them by `gres`, such as `gpu:a100:4(S:0-1)`."""
    if "gres/gpu" in tres:
        return tres["gres/gpu"]
    return sum(int(count) for count in _GPU.findall(gres))
