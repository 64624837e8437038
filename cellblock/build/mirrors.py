"""Which archive a base is bootstrapped from, as sources.list(5) lines.

In order: what the person names (--mirror), what the variant names, the host's own mirror when it
runs the same distribution, the default of the tool.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cellblock.errors import UsageError
from cellblock.variants import Variant, host_release


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


_LINE = re.compile(r"^deb\s+(\[[^]]*\]\s+)?(?P<uri>\S+)\s+\S+\s+\S+")


def archive(variant: Variant, mirrors: tuple[str, ...] = (), apt: Path = Path("/etc/apt")) -> Archive:
    """The archive for `variant`.

    Each of `mirrors` is a URL of the variant's distribution, or a whole `deb ...` line. Raises
    UsageError when one is neither, or a file:// archive is not there.
    """
    chosen = mirrors or ((variant.mirror,) if variant.mirror else ())
    if not chosen:
        host = _host_mirror(apt) if host_release().get("ID") == variant.distribution.id else None
        return Archive(_with_security(variant, *host) if host else ())
    components = " ".join(variant.distribution.components(variant.cuda))
    lines, local = [], []
    for mirror in chosen:
        line = mirror
        if re.fullmatch(r"(https?|file|copy)://?\S+", mirror):
            line = f"deb {mirror} {variant.distribution.codename} {components}"
        parsed = _LINE.match(line)
        if not parsed:
            raise UsageError(
                f"'{mirror}' is neither a URL of an archive nor a `deb URL SUITE COMPONENTS` line",
                hint="give --mirror http://HOST/PATH or file:///PATH",
            )
        uri = parsed["uri"]
        if uri.startswith("file:"):
            folder = Path(re.sub("^/+", "/", uri.removeprefix("file:")))
            if not (folder / "dists").is_dir():
                raise UsageError(
                    f"there is no archive in {folder}: it holds no folder 'dists'",
                    hint="name the folder above 'dists'",
                )
            local.append(folder)
        lines.append(line)
    return Archive(tuple(lines), tuple(local))


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
