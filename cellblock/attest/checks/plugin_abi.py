# SPDX-License-Identifier: Apache-2.0
"""Checks that an image's SPANK plugins were compiled for the release of Slurm in the same image.

Slurm's loader compares the major and minor release in the symbol plugin_version with its own, at a node's
first job. Plugins are read as data, as spank_jail/release/plugin_release.c does.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from cellblock.attest.checks.checked_image import InspectedImage, is_spank_plugin
from cellblock.attest.finding import Finding
from cellblock.debian.package_database import InstalledPackage

_SYMBOL = "plugin_version"
# By the names that Debian gives them, and Cellblock those it compiles.
_SLURM = ("slurmd", "slurmctld", "slurm-client", "slurm-wlm-basic-plugins")
_RELEASE = re.compile(r"(\d+)\.(\d+)")


def check(image: InspectedImage) -> Iterator[Finding]:
    """One finding a plugin that the image's Slurm would not load."""
    slurm = slurm_release(image.packages)
    for path, entry in image.contents.entries.items():
        if entry.kind != "file" or not is_spank_plugin(path):
            continue
        data = image.contents.read(path)
        release = plugin_release(data) if data is not None else None
        if release is None:
            what = f"/{path} is named as a SPANK plugin and has no symbol {_SYMBOL}"
        elif slurm is not None and release != slurm:
            what = f"/{path} is built for Slurm {_shown(release)}, and the image has {_shown(slurm)}"
        else:
            continue
        yield Finding(
            "plugin-abi",
            image.subject.name,
            image.subject.variant,
            what,
            "slurmd and srun refuse it when they first load it, and every job fails",
            "build the plugins against this variant's Slurm: `build.py build plugins "
            f"--variant {image.subject.variant}`, then this image",
            path=f"/{path}",
            layer=image.layer_of(entry),
        )


def slurm_release(packages: tuple[InstalledPackage, ...]) -> tuple[int, int] | None:
    """(major, minor) of the Slurm that an image's packages bring; None when it has none."""
    for package in packages:
        found = _RELEASE.match(package.upstream) if package.name in _SLURM else None
        if found:
            return int(found[1]), int(found[2])
    return None


def plugin_release(data: bytes) -> tuple[int, int] | None:
    """(major, minor) that a shared object's plugin_version names; None when it is no plugin of Slurm.

    The number is SLURM_VERSION_NUM of slurm/slurm.h: major << 16 | minor << 8 | micro.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    try:
        elf = ELFFile(io.BytesIO(data))
        table = elf.get_section_by_name(".dynsym")
        symbols = table.get_symbol_by_name(_SYMBOL) if isinstance(table, SymbolTableSection) else None
        for symbol in symbols or ():
            for offset in elf.address_offsets(symbol["st_value"], 4):
                number = int.from_bytes(data[offset : offset + 4], "little" if elf.little_endian else "big")
                return number >> 16 & 0xFF, number >> 8 & 0xFF
    except ELFError:
        return None
    return None


def _shown(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]:02d}"
