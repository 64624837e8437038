# SPDX-License-Identifier: Apache-2.0
"""Reads the licences of a Debian package from its copyright file, as an SPDX licence expression.

Only the machine-readable form (DEP-5, "Machine-readable debian/copyright file" 1.0) can be read by a program.
Its short names differ from SPDX's identifiers. A licence without such an identifier becomes a LicenseRef, and
the SBOM says where its text is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_PREFIX = "LicenseRef-debian-"

# Debian's short names (lower case) where they are not SPDX's own. "X+" is handled by itself.
_NAMES = {
    "expat": "MIT",
    "mit": "MIT",
    "x11": "X11",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "bsd-4-clause": "BSD-4-Clause",
    "bsd-4-clause-uc": "BSD-4-Clause-UC",
    "apache-2": "Apache-2.0",
    "apache-2.0": "Apache-2.0",
    "artistic": "Artistic-1.0-Perl",
    "artistic-2": "Artistic-2.0",
    "artistic-2.0": "Artistic-2.0",
    "cc0": "CC0-1.0",
    "cc0-1.0": "CC0-1.0",
    "isc": "ISC",
    "zlib": "Zlib",
    "boost-1.0": "BSL-1.0",
    "bsl-1.0": "BSL-1.0",
    "mpl-1.1": "MPL-1.1",
    "mpl-2.0": "MPL-2.0",
    "openssl": "OpenSSL",
    "psf-2": "PSF-2.0",
    "python-2.0": "Python-2.0",
    "unicode-dfs-2016": "Unicode-DFS-2016",
    "w3c": "W3C",
    "curl": "curl",
    "0bsd": "0BSD",
    "fsful": "FSFUL",
    "fsfullr": "FSFULLR",
}
_GNU = re.compile(r"(?P<name>A?GPL|LGPL|GFDL|GFDL-NIV)-(?P<version>[0-9.]+)(?P<later>\+)?", re.IGNORECASE)
_FORMAT = re.compile(
    r"\A\s*Format\s*:\s*https?://\S+copyright-format/1\.0/?[ \t]*$", re.IGNORECASE | re.MULTILINE
)
_FORMAT_LINE = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
_VERSIONS = {"1": "1.0", "2": "2.0", "3": "3.0"}


@dataclass(frozen=True)
class Licences:
    """An SPDX expression, and the names behind the LicenseRefs in it."""

    expression: str
    references: tuple[tuple[str, str], ...] = ()
    """(LicenseRef-..., Debian's short name), sorted."""


@lru_cache(maxsize=2048)
def licences_of(copyright_file: str) -> Licences | None:
    """All licences that a copyright file declares, joined by AND; None when it is not machine-readable."""
    from debian.copyright import Copyright, Error

    # The library speaks up about an http:// here, and there are many.
    text, found = _FORMAT.subn(_FORMAT_LINE, copyright_file, count=1)
    if not found:
        return None
    try:
        parsed = Copyright(text.splitlines(keepends=True), strict=False)
        # Its fields are descriptors that no type checker sees through.
        paragraphs: list[Any] = [parsed.header, *parsed.all_files_paragraphs()]
        synopses = {
            paragraph.license.synopsis
            for paragraph in paragraphs
            if paragraph.license is not None and paragraph.license.synopsis
        }
    except (Error, ValueError, TypeError):
        return None
    return combined(synopses)


def combined(synopses: Iterable[str]) -> Licences | None:
    """The expression of several of Debian's, each such as "GPL-2+ or Artistic"; None without any."""
    parts: dict[str, None] = {}
    references: dict[str, str] = {}
    for synopsis in sorted(set(synopses)):
        expression, names = _expression(" ".join(synopsis.split()))
        parts.setdefault(f"({expression})" if " OR " in expression else expression)
        references.update(names)
    if not parts:
        return None
    joined = " AND ".join(sorted(parts))
    if len(parts) == 1:
        joined = joined.removeprefix("(").removesuffix(")")
    return Licences(joined, tuple(sorted(references.items())))


def _expression(synopsis: str) -> tuple[str, dict[str, str]]:
    """DEP-5: `and` binds tighter than `or`, and a comma makes the `and` after it weaker; no parentheses."""
    references: dict[str, str] = {}

    def alternatives(text: str) -> str:
        each = [conjunction(part) for part in re.split(r"\s+or\s+", text, flags=re.IGNORECASE)]
        return " OR ".join(sorted(set(each)))

    def conjunction(text: str) -> str:
        each = [licence(part) for part in re.split(r"\s+and\s+", text, flags=re.IGNORECASE)]
        return " AND ".join(sorted(set(each)))

    def licence(text: str) -> str:
        identifier = _identifier(text.strip(" ,"))
        if identifier.startswith(_PREFIX):
            references[identifier] = text.strip(" ,")
        return identifier

    groups = [alternatives(part) for part in re.split(r",\s+and\s+", synopsis, flags=re.IGNORECASE)]
    if len(groups) == 1:
        return groups[0], references
    return " AND ".join(f"({each})" if " OR " in each else each for each in sorted(set(groups))), references


@lru_cache(maxsize=4096)
def _identifier(name: str) -> str:
    known = _NAMES.get(name.lower())
    if known:
        return known
    gnu = _GNU.fullmatch(name)
    if gnu:
        version = _VERSIONS.get(gnu["version"], gnu["version"])
        family, _, invariants = gnu["name"].upper().partition("-")
        middle = "no-invariants-" if invariants else ""
        identifier = f"{family}-{version}-{middle}{'or-later' if gnu['later'] else 'only'}"
        if _is_spdx(identifier):
            return identifier
    if _is_spdx(name):
        return name
    # Letters, digits, "." and "-" only: SPDX 2.3, section 10.1.
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", name.replace("+", "-or-later")).strip("-.")
    return _PREFIX + (plain or "unnamed")


def _is_spdx(name: str) -> bool:
    return name in _spdx_identifiers()


@lru_cache(maxsize=1)
def _spdx_identifiers() -> frozenset[str]:
    symbols = spdx_licensing().known_symbols
    return frozenset(key for key, symbol in symbols.items() if not symbol.is_exception)


@lru_cache(maxsize=1)
def spdx_licensing() -> Any:
    """license-expression's Licensing with SPDX's identifiers; making one takes a twentieth of a second."""
    from license_expression import get_spdx_licensing  # type: ignore[import-untyped]

    return get_spdx_licensing()
