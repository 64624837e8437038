"""Which other libraries an ELF file needs (DT_NEEDED), read with pyelftools."""

from __future__ import annotations

import contextlib
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile


def needs(path: Path) -> list[bytes]:
    """The names that the dynamic loader is asked for; none when the file is no dynamic ELF file."""
    with path.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return []
        with contextlib.suppress(ELFError, ValueError, KeyError):
            section = ELFFile(file).get_section_by_name(".dynamic")
            if isinstance(section, DynamicSection):
                return [
                    getattr(tag, "needed").encode("utf-8", "surrogateescape")  # noqa: B009 - made at run time
                    for tag in section.iter_tags("DT_NEEDED")
                ]
    return []
