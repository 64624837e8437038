# SPDX-License-Identifier: Apache-2.0
"""Describes archives of packages: a line of sources.list(5) that can name several mirrors of one archive."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from cellblock.errors import UsageError

_LINE = re.compile(
    r"^deb\s+(?:\[(?P<options>[^]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?:\s+(?P<components>.+))?$"
)


@dataclass(frozen=True)
class PackageArchive:
    """One archive: `uris` are its mirrors, tried in turn; `options` those of sources.list(5).

    A flat archive has a suite that ends in `/` and no components.
    """

    uris: tuple[str, ...]
    suite: str
    components: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The sources.list(5) line of the first mirror."""
        return self.line_at(self.uris[0])

    def line_at(self, uri: str) -> str:
        """The sources.list(5) line of the mirror `uri`."""
        options = f"[{' '.join(self.options)}]" if self.options else ""
        return " ".join(part for part in ("deb", options, uri, self.suite, *self.components) if part)


def parse_line(line: str, mirrors: Iterable[str] = ()) -> PackageArchive:
    """A `deb [OPTIONS] URI SUITE COMPONENTS` line; `mirrors` are further URIs of the same archive.

    Raises UsageError when it is not such a line.
    """
    parsed = _LINE.match(line.strip())
    components = tuple((parsed["components"] or "").split()) if parsed else ()
    if not parsed or bool(components) == parsed["suite"].endswith("/"):
        raise UsageError(
            f"'{line}' is no line of an archive of packages",
            hint="write `deb [OPTIONS] URL SUITE COMPONENTS`, or `deb URL ./` for a flat one",
        )
    uris = tuple(uri.rstrip("/") for uri in (parsed["uri"], *mirrors))
    return PackageArchive(
        tuple(dict.fromkeys(uris)), parsed["suite"], components, tuple((parsed["options"] or "").split())
    )


def archives_of(lines: Iterable[str]) -> tuple[PackageArchive, ...]:
    """The archives of sources.list(5) lines."""
    return tuple(parse_line(line) for line in lines)
