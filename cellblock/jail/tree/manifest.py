# SPDX-License-Identifier: Apache-2.0
"""Reads and writes manifests; a manifest lists a tree as Cellblock wrote it, in this format, version 1.

    cellblock-manifest 1
    d 755 0 0 0 1700000000000000000 - - .
    f 4755 0 0 71816 1700000000000000000 9f86...0a08 - usr/bin/passwd
    l 777 0 0 7 1700000000000000000 usr/bin - bin
    h 755 0 0 1388336 1700000000000000000 usr/bin/perl - usr/bin/perl5.40.1
    c 666 0 0 0 1700000000000000000 1:3 - dev/null
    f 755 0 0 90 1700000000000000000 60e0...11b3 security.capability=AQAAAgAgAAA= usr/bin/ping
    end 6 4d3c...e0b1

Fields, separated by one space: kind, mode (octal, permission bits), uid, gid, size in bytes, mtime in
nanoseconds since the epoch, content, extended attributes, path. The content of a regular file (f) is
its SHA-256, of a symbolic link (l) its text, of a hard link (h) the path it is another name of, of a
device (c, b) major:minor; of others `-`. Extended attributes are NAME=BASE64, joined by commas, or `-`.
In text and paths the bytes up to 0x20, 0x7f and `%` are written `%XX`; all others are as they are, UTF-8
or not. Lines are sorted by `entry.order`: a reader that wants to compare needs one line at a time.

`end` gives the number of entries and the SHA-256 of every byte before that line: a manifest that was
cut off is known as such.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import cast
from urllib.parse import unquote_to_bytes

from cellblock.jail.tree.entry import Entry, Kind, Xattrs

HEADER = b"cellblock-manifest 1\n"
DAMAGED_HINT = (
    "the tree is not touched: `jail restore` brings the volume back from a backup with its records; "
    "without one, assemble the image into another volume and copy there what users made"
)

_ESCAPED = re.compile(rb"[\x00-\x20\x7f%]")
_ESCAPED_NAME = re.compile(rb"[\x00-\x20\x7f%,=]")
_KINDS = frozenset("dflpcbh")


def escape(text: bytes, unsafe: re.Pattern[bytes] = _ESCAPED) -> bytes:
    """`text` without spaces and newlines, so that it is one field."""
    return unsafe.sub(lambda found: b"%%%02X" % found[0][0], text)


def unescape(field: bytes) -> bytes:
    """The path of a manifest's last field."""
    if field == b".":
        return b""
    return unquote_to_bytes(field) if b"%" in field else field


def line(entry: Entry) -> bytes:
    """The manifest's line for `entry`, with its newline."""
    if entry.kind == "f":
        content = entry.digest.encode()
    elif entry.kind in "lh":
        content = escape(entry.target)
    elif entry.kind in "cb":
        content = b"%d:%d" % entry.device
    else:
        content = b"-"
    xattrs = b",".join(
        escape(name, _ESCAPED_NAME) + b"=" + base64.b64encode(value) for name, value in entry.xattrs
    )
    return b"%c %o %d %d %d %d %s %s %s\n" % (
        entry.kind.encode(),
        entry.mode,
        entry.uid,
        entry.gid,
        entry.size,
        entry.mtime_ns,
        content or b"-",
        xattrs or b"-",
        escape(entry.path) or b".",
    )


def write(path: Path, entries: Iterable[Entry]) -> str:
    """Write a new manifest of sorted `entries`; returns the SHA-256 that its last line holds."""
    total, count = hashlib.sha256(HEADER), 0
    with path.open("xb") as file:
        file.write(HEADER)
        for entry in entries:
            text = line(entry)
            total.update(text)
            file.write(text)
            count += 1
        file.write(b"end %d %s\n" % (count, total.hexdigest().encode()))
    return total.hexdigest()


def parse(text: bytes) -> Entry:
    """The entry of one line. Raises ValueError saying what is wrong with it."""
    fields = text.rstrip(b"\n").split(b" ")
    if len(fields) != 9:
        raise ValueError(f"expected 9 fields, found {len(fields)}")
    kind, mode, uid, gid, size, mtime, content, xattrs, path = fields
    name = kind.decode("ascii", "replace")
    if name not in _KINDS:
        raise ValueError(f"unknown kind of file {name!r}")
    device = (0, 0)
    if name in "cb":
        major, _, minor = content.partition(b":")
        device = (int(major), int(minor))
    return Entry(
        path=unescape(path),
        kind=cast(Kind, name),
        mode=int(mode, 8),
        uid=int(uid),
        gid=int(gid),
        size=int(size),
        mtime_ns=int(mtime),
        target=unquote_to_bytes(content) if name in "lh" else b"",
        device=device,
        xattrs=_xattrs(xattrs),
        digest=content.decode("ascii") if name == "f" else "",
    )


def _xattrs(field: bytes) -> Xattrs:
    if field == b"-":
        return ()
    pairs = (pair.partition(b"=") for pair in field.split(b","))
    return tuple((unquote_to_bytes(name), base64.b64decode(value, validate=True)) for name, _, value in pairs)
