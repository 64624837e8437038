# SPDX-License-Identifier: Apache-2.0
"""Finds the package of each file of an image, and the packages' versions, in dpkg's database in the layers.

The lists in /var/lib/dpkg/info are PACKAGE.list or PACKAGE:ARCH.list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cellblock.debian.status import packages_of
from cellblock.oci.contents import LayerContents

_INFO = "var/lib/dpkg/info/"

# Directories that are links into /usr on merged systems, while packages still name files by them.
_MERGED = re.compile(r"(?:bin|sbin|lib|lib32|lib64|libx32)/")


def merged_path(path: str) -> str:
    """One name for a file whether or not its directory was named through /usr."""
    return f"usr/{path}" if _MERGED.match(path) else path


def owners(layers: Iterable[LayerContents]) -> dict[str, str]:
    """Package by path (see `merged_path`), of all packages whose lists are in `layers`."""
    found: dict[str, str] = {}
    for layer in layers:
        for path, inode in layer.inodes.items():
            if not path.startswith(_INFO) or not path.endswith(".list") or inode not in layer.kept:
                continue
            package = path[len(_INFO) : -len(".list")].partition(":")[0]
            for line in layer.kept[inode].decode("utf-8", "surrogateescape").splitlines():
                if line != "/.":
                    found[merged_path(line.lstrip("/"))] = package
            # What dpkg keeps of a package is the package's too.
            stem = path[: -len("list")]
            for name in layer.entries:
                if name.startswith(stem):
                    found[name] = package
    return found


def installed(status: bytes) -> dict[str, str]:
    """Versions of the packages that a dpkg status file calls installed; `name:arch` for a second one."""
    found: dict[str, str] = {}
    for package in packages_of(status):
        if package.is_installed:
            name = package.name
            found[f"{name}:{package.architecture}" if name in found else name] = package.version
    return found
