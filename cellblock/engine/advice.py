"""What to do about failures that programs of a build report in words that are known."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from cellblock.engine.recipe import Recipe

# What programs print in situations that have a known remedy.
_ADVICE = {
    "No space left on device": "free disk space (`df -h`, `buildah rmi --prune`)",
    "Could not resolve": "check the network, or name another mirror with --mirror",
    "Could not connect": "check the network, or name another mirror with --mirror",
    "Failed to fetch": "check the mirror, or name another with --mirror",
    "does not have a Release file": "check the mirror, or name another with --mirror",
    "Release file for": "the mirror's index is too old; name another mirror with --mirror",
    "Unable to locate package": "the distribution has no such package: correct `packages` in image.yaml",
    "NO_PUBKEY": "install the distribution's keyring package (`build.py doctor` names it)",
    "is not signed": "install the distribution's keyring package (`build.py doctor` names it)",
}


# With less than this many bytes left, whatever a program says, the disk is why it failed: apt, for
# one, tries another name of a file that it could not write, and reports that it does not exist.
_FULL = 32 << 20


def advice(recipe: Recipe, tail: Sequence[str]) -> str:
    """What to do about a step of `recipe` whose output ended with `tail`; empty when nothing is known."""
    if recipe.package_cache.is_dir():
        free = shutil.disk_usage(recipe.package_cache).free
        if free < _FULL:
            return f"free disk space: {recipe.package_cache} has {free >> 20} MiB left"
    text = "\n".join(tail)
    return next((remedy for symptom, remedy in _ADVICE.items() if symptom in text), "")
