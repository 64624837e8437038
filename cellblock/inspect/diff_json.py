# SPDX-License-Identifier: Apache-2.0
"""Turns the differences that diff.py found between two images into JSON, for `build.py diff --json`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cellblock.inspect.diff import FileChange, ImageDiff
from cellblock.oci.layer_tar import Entry


def diff_json(diff: ImageDiff) -> dict[str, Any]:
    """All of `diff`. Paths are absolute; bytes that are no UTF-8 are escaped."""
    return {
        "old": {"name": diff.old, "digest": diff.old_digest},
        "new": {"name": diff.new, "digest": diff.new_digest},
        "equal": diff.is_equal,
        "packages": [{**asdict(change), "change": change.sign} for change in diff.packages],
        "files": [_file(change) for change in diff.files],
        "privileged": [
            {"path": _path(change.path), "old": change.privileges[0], "new": change.privileges[1]}
            for change in diff.privileged
        ],
        "settings": [{**asdict(change), "change": change.sign} for change in diff.settings],
        "layers": asdict(diff.layers),
    }


def _file(change: FileChange) -> dict[str, Any]:
    return {
        "path": _path(change.path),
        "change": change.sign,
        "what": list(change.what),
        "package": change.package or None,
        "old": _entry(change.old),
        "new": _entry(change.new),
    }


def _entry(entry: Entry | None) -> dict[str, Any] | None:
    if entry is None:
        return None
    return {
        "type": entry.kind,
        "mode": f"{entry.mode:04o}",
        "uid": entry.uid,
        "gid": entry.gid,
        "bytes": entry.size,
        "target": _printable(entry.target) or None,
        "sha256": entry.digest,
        "xattrs": {name: value.hex() for name, value in entry.xattrs},
    }


def _path(path: str) -> str:
    return "/" + _printable(path)


def _printable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
