"""What to do about failures that have a known remedy."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

# What programs print, and the remedy.
_ADVICE = {
    "No space left on device": "free disk space (`df -h`, `build.py cache trim`)",
    "Could not resolve": "check the network, or name another mirror with --mirror",
    "Could not connect": "check the network, or name another mirror with --mirror",
    "Failed to fetch": "check the mirror, or name another with --mirror",
    "does not have a Release file": "check the mirror, or name another with --mirror",
    "Release file for": "the mirror's index is too old; name another mirror with --mirror",
    "Unable to locate package": "the distribution has no such package: correct `packages` in image.yaml",
    "installation script subprocess returned error": "a package's own script says so; a question is answered "
    "in `run` of an image below: echo 'PACKAGE QUESTION TYPE ANSWER' | debconf-set-selections",
    "NO_PUBKEY": "install the distribution's keyring package (`build.py doctor` names it)",
    "is not signed": "install the distribution's keyring package (`build.py doctor` names it)",
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
    return next((remedy for symptom, remedy in _ADVICE.items() if symptom in text), "")
