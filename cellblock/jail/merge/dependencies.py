# SPDX-License-Identifier: Apache-2.0
"""Checks whether packages fit together: Depends, Pre-Depends, Breaks, Conflicts (deb-control(5)).

package_choice.py asks this before it combines packages of the image with packages of the users.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from debian.debian_support import NativeVersion

from cellblock.debian.status import Package
from cellblock.errors import CellblockError

_ATOM = re.compile(
    r"\s*([a-z0-9][a-z0-9+.-]*)(?::([a-z0-9-]+))?\s*(?:\(\s*(<<|<=|=|>=|>>|<|>)\s*([^)\s]+)\s*\))?"
)


class Atom(NamedTuple):
    """One alternative of a relation: a name, and perhaps how its version must compare."""

    name: str
    operator: str
    version: str


class Problem(NamedTuple):
    """`package` cannot be with the others; `names` are those whose absence or presence is the reason."""

    package: str
    relation: str
    names: tuple[str, ...]
    is_conflict: bool


@lru_cache(maxsize=100_000)
def compare(left: str, right: str) -> int:
    """Compare two versions as dpkg does: negative, 0 or positive."""
    if left == right:
        return 0
    try:
        one, other = NativeVersion(left), NativeVersion(right)
    except ValueError as error:
        raise CellblockError(
            f"a package in the jail's database has an invalid version: {error}; nothing was changed",
            hint="`dpkg --audit` in the jail, or its file /var/lib/dpkg/status, says which",
        ) from None
    return -1 if one < other else 1 if one > other else 0


@lru_cache(maxsize=50_000)
def relations(text: str) -> tuple[tuple[Atom, ...], ...]:
    """Parse a field into its relations, each a tuple of alternatives."""
    found = []
    for relation in text.replace("\n", " ").split(","):
        atoms = tuple(
            Atom(match[1], match[3] or "", match[4] or "")
            for alternative in relation.split("|")
            if (match := _ATOM.match(alternative))
        )
        if atoms:
            found.append(atoms)
    return tuple(found)


def _satisfies(version: str, atom: Atom) -> bool:
    if not atom.operator:
        return True
    result = compare(version, atom.version)
    return {
        "<<": result < 0,
        "<": result <= 0,  # obsolete, and means this
        "<=": result <= 0,
        "=": result == 0,
        ">=": result >= 0,
        ">": result >= 0,
        ">>": result > 0,
    }[atom.operator]


def applies_to(text: str, package: Package) -> bool:
    """Whether a relation like Replaces or Breaks, a field's `text`, is about this package in its version."""
    atoms = (atom for alternatives in relations(text) for atom in alternatives)
    return any(atom.name == package.name and _satisfies(package.version, atom) for atom in atoms)


def problems(packages: Mapping[str, Package]) -> list[Problem]:
    """List the relations that these packages would violate if they were installed together."""
    real: dict[str, list[Package]] = {}
    virtual: dict[str, list[tuple[str, Package]]] = {}
    for package in packages.values():
        real.setdefault(package.name, []).append(package)
        for (atom,) in (one[:1] for one in relations(package.fields.get("Provides", ""))):
            virtual.setdefault(atom.name, []).append((atom.version, package))

    def providers(atom: Atom) -> list[Package]:
        found = [one for one in real.get(atom.name, ()) if _satisfies(one.version, atom)]
        for version, one in virtual.get(atom.name, ()):
            if not atom.operator or (version and _satisfies(version, atom)):
                found.append(one)
        return found

    found = []
    for key, package in packages.items():
        for field in ("Pre-Depends", "Depends"):
            for alternatives in relations(package.fields.get(field, "")):
                if not any(providers(atom) for atom in alternatives):
                    names = tuple(atom.name for atom in alternatives)
                    found.append(Problem(key, f"{field}: {_text(alternatives)}", names, is_conflict=False))
        for field in ("Conflicts", "Breaks"):
            for atom, *_ in relations(package.fields.get(field, "")):
                others = [one for one in providers(atom) if one.name != package.name]
                if others:
                    names = tuple(one.key for one in others)
                    found.append(Problem(key, f"{field}: {_text((atom,))}", names, is_conflict=True))
    return found


def _text(alternatives: tuple[Atom, ...]) -> str:
    return " | ".join(
        f"{atom.name} ({atom.operator} {atom.version})" if atom.operator else atom.name
        for atom in alternatives
    )
