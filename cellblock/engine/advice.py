# SPDX-License-Identifier: Apache-2.0
"""Names the remedy for a failed build step, when a known cause shows, such as a full disk."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from cellblock.debian.apt_advice import apt_advice

# What programs print beside apt's complaints of a mirror, and the remedy.
_ADVICE = {
    "Unable to locate package": "the distribution has no such package: correct `packages` in image.yaml",
    "installation script subprocess returned error": "a package's own script says so; a question is answered "
    "in `run` of an image below: echo 'PACKAGE QUESTION TYPE ANSWER' | debconf-set-selections",
}

# With less than this many bytes left, whatever a program says, the disk is why it failed: apt, for
# one, tries another name of a file that it could not write, and reports that it does not exist.
_FULL = 32 << 20


def advice(tail: Sequence[str], folder: Path) -> str:
    """The remedy for a program that wrote to `folder` and ended with the lines `tail`; or nothing."""
    if folder.is_dir():
        free = shutil.disk_usage(folder).free
        if free < _FULL:
            return f"free disk space: {folder} has {free >> 20} MiB left"
    text = "\n".join(tail)
    known = next((remedy for symptom, remedy in _ADVICE.items() if symptom in text), "")
    return apt_advice(text) or known
