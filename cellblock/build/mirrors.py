# SPDX-License-Identifier: Apache-2.0
"""Decides from which archives, and which mirrors of them, the packages of a variant come.

The first of these decides: the option --mirror, the variant, this machine's own mirror when it runs the same
distribution, the default of mmdebstrap.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from cellblock.errors import UsageError
from cellblock.lock.archives import PackageArchive, archives_of, parse_line
from cellblock.lock.default_archives import default_archives
from cellblock.lock.model import Lock
from cellblock.machine.host import host_release
from cellblock.variants import Variant


@dataclass(frozen=True)
class Archive:
    """`lines` of sources.list(5) (empty: the tool's default) and the local folders behind file://.

    Lines that are `build_only` are for this machine's builds, and so are `preferences`, a text of
    apt_preferences(5); images do not keep them.
    """

    lines: tuple[str, ...]
    local: tuple[Path, ...] = ()
    build_only: tuple[str, ...] = ()
    preferences: str = ""


# Where a mirror's URL says which state of the archive it is, as a snapshot service's URLs do.
_SNAPSHOT = "{snapshot}"


def archive(variant: Variant, mirrors: tuple[str, ...] = (), apt: Path = Path("/etc/apt")) -> Archive:
    """The archive for `variant`.

    Each of `mirrors` is a URL of the variant's distribution, or a whole `deb ...` line. Raises
    UsageError when one is neither, or a file:// archive is not there.
    """
    named = _named_archives(variant, mirrors, None, apt)
    lines = tuple(archive.line_at(uri) for archive in named for uri in archive.uris)
    return Archive(lines, tuple(folder for archive in named for folder in local_folders(archive)))


def package_archives(
    variant: Variant,
    mirrors: tuple[str, ...] = (),
    snapshot: str | None = None,
    apt: Path = Path("/etc/apt"),
) -> tuple[PackageArchive, ...]:
    """The archives to lock `variant` from, with the tool's default spelled out.

    URLs among `mirrors` are mirrors of one archive, tried in turn; each `deb ...` line is an archive of
    its own. `snapshot`, a date as the mirror writes it, stands for `{snapshot}` in their URLs. Raises
    UsageError as `archive`, or when a snapshot is asked for and no URL has a place for it.
    """
    return _named_archives(variant, mirrors, snapshot, apt) or default_archives(variant)


def mirrors_of_lock(lock: Lock, here: tuple[PackageArchive, ...]) -> tuple[PackageArchive, ...]:
    """The lock's archives with this machine's mirrors of them first: a lock fixes bytes, not places.

    `here` is what `package_archives` gives on this machine; archives match by suite and components.
    """

    def mirrors(archive: PackageArchive) -> tuple[str, ...]:
        same = (one for one in here if (one.suite, one.components) == (archive.suite, archive.components))
        return tuple(dict.fromkeys((*(uri for one in same for uri in one.uris), *archive.uris)))

    # Flat archives are all called `./`: those of others are no mirrors of these.
    return tuple(
        archive if archive.suite.endswith("/") else replace(archive, uris=mirrors(archive))
        for archive in lock.archives
    )


def local_folders(archive: PackageArchive) -> tuple[Path, ...]:
    """The folders behind an archive's file:// URLs."""
    return tuple(_folder(uri) for uri in archive.uris if uri.startswith("file:"))


def _folder(uri: str) -> Path:
    return Path(re.sub("^/+", "/", uri.removeprefix("file:")))


def _named_archives(
    variant: Variant, mirrors: tuple[str, ...], snapshot: str | None, apt: Path
) -> tuple[PackageArchive, ...]:
    """What the person, the variant or this machine names, in that order; empty when none does."""
    chosen = mirrors or ((variant.mirror,) if variant.mirror else ())
    if snapshot and not any(_SNAPSHOT in mirror for mirror in chosen):
        raise UsageError(
            f"--snapshot {snapshot}: no mirror keeps earlier states, as far as Cellblock was told",
            hint=f"name one with {_SNAPSHOT} in its place: --mirror 'deb http://HOST/{_SNAPSHOT} SUITE main'",
        )
    if not chosen:
        host = _host_mirror(apt) if host_release().get("ID") == variant.distribution.id else None
        return archives_of(_with_security(variant, *host)) if host else ()
    archives: list[PackageArchive] = []
    urls: list[str] = []
    for mirror in chosen:
        if _SNAPSHOT in mirror and not snapshot:
            raise UsageError(
                f"'{mirror}' has a place for a date, and none is given",
                hint="add --snapshot DATE, as the mirror writes it: 20261101T000000Z",
            )
        place = mirror.replace(_SNAPSHOT, snapshot or "")
        if re.fullmatch(r"(https?|file|copy)://?\S+", place):
            urls.append(place)
        elif place.startswith("deb "):
            archives.append(parse_line(place))
        else:
            raise UsageError(
                f"'{mirror}' is neither a URL of an archive nor a `deb URL SUITE COMPONENTS` line",
                hint="give --mirror http://HOST/PATH or file:///PATH",
            )
    if urls:
        components = " ".join(variant.distribution.components(variant.cuda))
        line = f"deb {urls[0]} {variant.distribution.codename} {components}"
        archives.insert(0, parse_line(line, urls[1:]))
    for archive in archives:
        for folder in local_folders(archive):
            _check_local(archive, folder)
    return tuple(archives)


def _check_local(archive: PackageArchive, folder: Path) -> None:
    if archive.suite.endswith("/"):
        if not any((folder / archive.suite).glob("Packages*")):
            raise UsageError(
                f"there is no flat archive in {folder / archive.suite}: it holds no file 'Packages'",
                hint="make one: `dpkg-scanpackages . > Packages`",
            )
    elif not (folder / "dists").is_dir():
        raise UsageError(
            f"there is no archive in {folder}: it holds no folder 'dists'",
            hint="name the folder above 'dists'",
        )


def _with_security(variant: Variant, mirror: str, security: str | None) -> tuple[str, ...]:
    """The host's mirrors for the variant's suite, with its updates and security suites."""
    suite = variant.distribution.codename
    components = " ".join(variant.distribution.components(variant.cuda))
    lines = [f"deb {mirror} {suite} {components}"]
    if variant.distribution.stable:
        lines.append(f"deb {mirror} {suite}-updates {components}")
        if security:
            lines.append(f"deb {security} {suite}-security {components}")
    return tuple(lines)


def _host_mirror(apt: Path) -> tuple[str, str | None] | None:
    """(mirror, security mirror) of the host's own suite, from its sources; None when unclear."""
    codename = host_release().get("VERSION_CODENAME")
    by_suite: dict[str, str] = {}
    for path in (apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))):
        if path.suffix not in (".list", ".sources") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for uri, suite in _deb822(text) if path.suffix == ".sources" else _one_line(text):
            by_suite.setdefault(suite, uri)
    if not codename or codename not in by_suite:
        return None
    return by_suite[codename], by_suite.get(f"{codename}-security")


def _one_line(text: str) -> list[tuple[str, str]]:
    found = re.findall(r"^deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)", text, flags=re.MULTILINE)
    return [(uri, suite) for uri, suite in found if uri.startswith("http")]


def _deb822(text: str) -> list[tuple[str, str]]:
    """URIs and suites of the stanzas of a deb822 file (sources.list(5), DEB822-STYLE FORMAT)."""
    pairs: list[tuple[str, str]] = []
    for stanza in re.split(r"\n\s*\n", text):
        lines = [line for line in stanza.splitlines() if ":" in line and not line.startswith(("#", " "))]
        fields = {key.strip().lower(): value.split() for key, value in (ln.split(":", 1) for ln in lines)}
        if "deb" in fields.get("types", []) and fields.get("enabled", ["yes"]) != ["no"]:
            for uri in fields.get("uris", []):
                if uri.startswith("http"):
                    pairs += [(uri, suite) for suite in fields.get("suites", [])]
    return pairs
