# SPDX-License-Identifier: Apache-2.0
"""Says in words how one file, link or directory differs between two images: `mode 0644 -> 0755`.

diff.py and compare.py find the pairs of entries; text_diff.py shows differing lines of text files.
"""

from __future__ import annotations

from datetime import datetime, timezone

from cellblock.oci.capability import XATTR, describe_capabilities
from cellblock.oci.layer_tar import Entry
from cellblock.oci.model import MalformedImage
from cellblock.text.amount import amount_of_bytes

SETUID_OR_SETGID = 0o6000


def describe(entry: Entry) -> str:
    """What an entry is: `file 0755 0:0 1.2 kB`, `symlink to x`."""
    owner = f"{entry.uid}:{entry.gid}"
    if entry.kind == "symlink":
        return f"symlink to {entry.target}, {owner}"
    if entry.kind == "hardlink":
        return f"hard link to /{entry.target}"
    size = f" {amount_of_bytes(entry.size)}" if entry.kind == "file" else ""
    return f"{entry.kind} {entry.mode:04o} {owner}{size}{_privileges_text(entry)}"


def privileges(entry: Entry | None) -> str:
    """`04755 0:0`, capabilities behind it; empty for an entry that gives none (or is none)."""
    if entry is None or entry.kind not in ("file", "hardlink"):
        return ""
    text = f"{entry.mode:05o} {entry.uid}:{entry.gid}" if entry.mode & SETUID_OR_SETGID else ""
    return (text + _privileges_text(entry)).strip()


def _privileges_text(entry: Entry) -> str:
    value = entry.xattr(XATTR)
    return f" {_capabilities(value)}" if value else ""


def _capabilities(value: bytes | None) -> str:
    try:
        return describe_capabilities(value) if value else "none"
    except MalformedImage:
        return f"an unknown value, {value.hex() if value else ''}"


def changes(old: Entry, new: Entry, *, times: bool = False) -> tuple[str, ...]:
    """What differs, each as `name old -> new`; contents by digest where both have one. Layers are ignored.

    `times`: modification times too.
    """
    found = []
    if old.kind != new.kind:
        found.append(f"type {old.kind} -> {new.kind}")
    elif old.target != new.target:
        found.append(f"target {old.target} -> {new.target}")
    if old.mode != new.mode and "symlink" not in (old.kind, new.kind):
        found.append(f"mode {old.mode:04o} -> {new.mode:04o}")
    if (old.uid, old.gid) != (new.uid, new.gid):
        found.append(f"owner {old.uid}:{old.gid} -> {new.uid}:{new.gid}")
    if old.device != new.device:
        found.append(f"device {old.device[0]}:{old.device[1]} -> {new.device[0]}:{new.device[1]}")
    if old.kind == new.kind and (old.size, old.digest) != (new.size, new.digest):
        sizes = f"{old.size} -> {new.size} bytes" if old.size != new.size else f"{old.size} bytes as before"
        found.append(f"content, {sizes}")
    found += _xattr_changes(old, new)
    if times and old.mtime != new.mtime:
        found.append(f"time {_time(old.mtime)} -> {_time(new.mtime)}")
    return tuple(found)


def _xattr_changes(old: Entry, new: Entry) -> list[str]:
    found = []
    for name in sorted({name for name, _ in (*old.xattrs, *new.xattrs)}):
        before, after = old.xattr(name), new.xattr(name)
        if before == after:
            continue
        if name == XATTR:
            found.append(f"capabilities {_capabilities(before)} -> {_capabilities(after)}")
        else:
            found.append(f"attribute {name} {_value(before)} -> {_value(after)}")
    return found


def _value(value: bytes | None) -> str:
    return "none" if value is None else repr(value)[1:]


def _time(seconds: float) -> str:
    whole = datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f"{seconds % 1:.9f}".rstrip("0")[1:] if seconds % 1 else ""
    return f"{whole}{fraction}Z"
