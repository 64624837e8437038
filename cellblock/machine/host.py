# SPDX-License-Identifier: Apache-2.0
"""Says which distribution this machine runs, and which variant fits it.

Standard library only, because the launcher asks before anything is installed.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

OS_RELEASE = "/etc/os-release"


def host_release(os_release: Path | str = OS_RELEASE) -> dict[str, str]:
    """os-release(5) of this machine as a mapping; empty when there is none."""
    try:
        with open(os_release, encoding="utf-8") as file:  # noqa: PTH123
            return parse_os_release(file.read())
    except OSError:
        return {}


def parse_os_release(text: str) -> dict[str, str]:
    """os-release(5) as a mapping."""
    lines = text.splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, value in pairs}


def newest_of_family(candidates: Iterable[tuple[str, str, str]], host: Mapping[str, str]) -> str | None:
    """Of (variant, distribution, version) the newest of the host's family: the name of the variant.

    `host` is the host's os-release. A host of another family gets Debian's; None: there is none, either.
    """
    known = list(candidates)
    # Ubuntu says ID_LIKE=debian: its own ID decides first.
    for family in (host.get("ID", ""), *host.get("ID_LIKE", "").split(), "debian"):
        mine = [each for each in known if each[1] == family]
        if mine:
            return max(mine, key=lambda each: [int(part) for part in each[2].split(".")])[0]
    return None
