# SPDX-License-Identifier: Apache-2.0
"""Recognises files that every system generates for itself, such as logs, caches and /etc/ld.so.cache.

A merge keeps the tree's own, and `jail diff` reports no difference in them.
"""

from __future__ import annotations

_QUIET = (b"var/log/", b"var/cache/", b"var/lib/apt/lists/", b"run/", b"tmp/")
_QUIET_FILES = frozenset(
    (
        b"etc/ld.so.cache",
        b"var/lib/dpkg/status-old",
        b"var/lib/dpkg/diversions-old",
        b"var/lib/dpkg/statoverride-old",
        b"var/lib/dpkg/available",
        *(
            b"etc/" + name + b"-"
            for name in (b"passwd", b"group", b"shadow", b"gshadow", b"subuid", b"subgid")
        ),
    )
)


def is_generated(path: bytes) -> bool:
    """Whether nobody wants to compare the two sides of `path`."""
    return path in _QUIET_FILES or path.startswith(_QUIET)
