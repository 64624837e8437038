"""Fields of a stanza of dpkg's database (deb-control(5))."""

from __future__ import annotations


def one_line_fields(stanza: str) -> dict[str, str]:
    """Name -> first line of each field of `stanza`."""
    pairs = (line.partition(":") for line in stanza.splitlines() if line[:1] not in (" ", "\t"))
    return {name: value.strip() for name, _, value in pairs}
