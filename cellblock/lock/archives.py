# SPDX-License-Identifier: Apache-2.0
"""Archives of packages: a line of sources.list(5) that can name several mirrors of one archive."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cellblock.errors import CellblockError, UsageError
from cellblock.variants import Variant

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


def default_archives(variant: Variant) -> tuple[PackageArchive, ...]:
    """What mmdebstrap takes when nobody names a mirror: it knows each distribution's own.

    Asked by a bootstrap that ends after writing its sources.list: no host name stands in Cellblock.
    Raises CellblockError when mmdebstrap is missing or does not know the suite.
    """
    distribution = variant.distribution
    with tempfile.TemporaryDirectory(prefix="cellblock-") as folder:
        copy = Path(folder, "sources")
        # The hook fails on purpose: nothing is to be bootstrapped.
        hook = f'cat "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/* > {copy} 2>/dev/null; exit 1'
        argv = ["mmdebstrap", "--quiet", "--mode=root", "--format=directory", "--variant=apt"]
        argv.append(f"--architectures={variant.arch.debian}")
        argv.append(f"--components={','.join(distribution.components(variant.cuda))}")
        argv += [f"--setup-hook={hook}", distribution.codename, str(Path(folder, "root"))]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise CellblockError(
                "mmdebstrap is not installed", hint="`python3 build.py doctor` names its package"
            ) from error
        text = copy.read_text(encoding="utf-8") if copy.is_file() else ""
    lines = [line for line in text.splitlines() if line.startswith("deb ")]
    if not lines:
        raise CellblockError(
            f"mmdebstrap knows no mirror for {distribution.title}: {done.stderr.strip()[-300:]}",
            hint="name one with --mirror",
        )
    return archives_of(lines)
