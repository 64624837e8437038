# SPDX-License-Identifier: Apache-2.0
"""Chooses the version of each package in the merged tree: the image's, the users', or none.

A package is one unit: its files and its records in dpkg's database come from the same side. three_way.py
merges files that belong to no package, and configuration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from cellblock.debian.status import Package
from cellblock.jail.merge.dependencies import Problem, compare, problems
from cellblock.jail.tree.dpkg_database import Database

Side = Literal["image", "tree", "none"]

_ROUNDS = 1000
"""Each round settles at least one package for good; chains of dependencies are far shorter."""


@dataclass
class Choices:
    """The decisions. `why` says so where it is not simply the image that goes on."""

    side: dict[str, Side] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    overridden: set[str] = field(default_factory=set)
    """Packages that the image replaces although users had changed their version, or had removed them."""
    problems: list[Problem] = field(default_factory=list)
    """What does not fit together afterwards and did before."""

    def set(self, key: str, side: Side, why: str = "") -> None:
        """Decide."""
        self.side[key] = side
        if why:
            self.why[key] = why


def choose(base: Database, new: Database, tree: Database) -> Choices:
    """Decide for every package that any side has."""
    choices = Choices()
    old, ours, theirs = base.installed, new.installed, tree.installed
    for key in sorted({*old, *ours, *theirs}):
        _choose_one(choices, key, old.get(key), ours.get(key), theirs.get(key))
    _satisfy(choices, ours, theirs)
    for key, side in choices.side.items():
        before, now = old.get(key), theirs.get(key)
        if side == "image" and (
            (now is not None and (before is None or now.version != before.version))
            or (now is None and before is not None)
        ):
            choices.overridden.add(key)
    return choices


def _choose_one(
    choices: Choices, key: str, old: Package | None, ours: Package | None, theirs: Package | None
) -> None:
    if ours is None:
        if theirs is None:
            choices.set(key, "none")
        elif old is None:
            choices.set(key, "tree", "installed by users")
        elif old.version == theirs.version and not theirs.is_held:
            choices.set(key, "none", "no longer in the image")
        else:
            choices.set(key, "tree", "changed by users; no longer in the image")
    elif theirs is None:
        if old is None:
            choices.set(key, "image")
        else:
            choices.set(key, "none", "removed by users")
    elif theirs.is_held and theirs.version != ours.version:
        choices.set(key, "tree", "held by users")
    elif old is not None and old.version == theirs.version:
        choices.set(key, "image")
    elif compare(theirs.version, ours.version) >= 0:
        why = (
            "" if theirs.version == ours.version else f"users have {theirs.version}, the image {ours.version}"
        )
        choices.set(key, "tree", why or "installed by users in the same version")
    elif old is not None and old.version == ours.version:
        choices.set(key, "tree", f"users chose {theirs.version}")
    else:
        choices.set(key, "image", f"newer than the users' {theirs.version}")


def _satisfy(choices: Choices, ours: dict[str, Package], theirs: dict[str, Package]) -> None:
    """Change decisions until all dependencies hold, each package at most once."""
    settled: set[str] = set()
    # What did not fit before, in the tree or in the image, is not this merge's to put right.
    was_broken = {*problems(theirs), *problems(ours)}
    for _ in range(_ROUNDS):
        merged = _merged(choices, ours, theirs)
        found = [problem for problem in problems(merged) if problem not in was_broken]
        if not found:
            return
        # Each in turn: a list would go on with decisions that were just changed.
        if not any(_fix(choices, problem, ours, theirs, settled) for problem in found):
            choices.problems = found
            return


def _merged(choices: Choices, ours: dict[str, Package], theirs: dict[str, Package]) -> dict[str, Package]:
    sides = {"image": ours, "tree": theirs}
    return {
        key: package
        for key, side in choices.side.items()
        if side != "none" and (package := sides[side].get(key)) is not None
    }


def _fix(
    choices: Choices,
    problem: Problem,
    ours: dict[str, Package],
    theirs: dict[str, Package],
    settled: set[str],
) -> bool:
    """Try to make one problem go away; whether anything was changed."""
    wanting = problem.package
    if problem.is_conflict:
        # What one side brings together fits together: an image's package gives way to the users'.
        for key in (wanting, *problem.names):
            if key not in settled and choices.side.get(key) == "image" and key in theirs:
                return _settle(choices, key, "tree", f"does not fit with {_other(problem, key)}", settled)
        return False
    for name in problem.names:
        for key in [one for one in choices.side if one == name or one.startswith(name + ":")]:
            if key in settled:
                continue
            side = choices.side[key]
            if side == "none" and choices.side.get(wanting) == "image" and key in ours:
                return _settle(choices, key, "image", f"{wanting} needs it", settled)
            if side in ("none", "image") and choices.side.get(wanting) == "tree" and key in theirs:
                return _settle(choices, key, "tree", f"the users' {wanting} needs it", settled)
            if side == "none" and key in ours:
                return _settle(choices, key, "image", f"{wanting} needs it", settled)
    if wanting not in settled and choices.side.get(wanting) == "image" and wanting in theirs:
        return _settle(choices, wanting, "tree", "the users' packages do not meet its needs", settled)
    return False


def _other(problem: Problem, key: str) -> str:
    return next((one for one in (problem.package, *problem.names) if one != key), problem.package)


def _settle(choices: Choices, key: str, side: Side, why: str, settled: set[str]) -> bool:
    settled.add(key)
    choices.set(key, side, why)
    return True
