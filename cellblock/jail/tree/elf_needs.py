# SPDX-License-Identifier: Apache-2.0
"""Reads which other libraries an ELF file needs (DT_NEEDED; System V gABI, "Dynamic Section").

It uses the standard library only: pyelftools takes 30 ms to load, a twentieth of a small upgrade.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

_LOAD, _DYNAMIC = 1, 2
_NULL, _NEEDED, _STRINGS, _STRINGS_SIZE = 0, 1, 5, 10
_MOST = 1 << 20
"""Bytes of a table: no program's is larger, and a damaged file may say anything."""
_MOST_NAMES, _LONGEST = 4096, 256
"""A name is that of a file."""


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


def needs(descriptor: int) -> list[bytes]:
    """The names that the dynamic loader is asked for; none when the file is no dynamic ELF file."""
    identity = os.pread(descriptor, 64, 0)
    if identity[:4] != b"\x7fELF" or len(identity) < 16:
        return []
    try:
        return _needed(descriptor, identity)
    except (struct.error, ValueError, OverflowError, OSError):
        return []  # cut off, or no table where one should be


def _needed(descriptor: int, header: bytes) -> list[bytes]:
    is_64, order = header[4] == 2, ">" if header[5] == 2 else "<"
    table, each, count = (
        (*struct.unpack_from(order + "Q", header, 32), *struct.unpack_from(order + "HH", header, 54))
        if is_64
        else (*struct.unpack_from(order + "I", header, 28), *struct.unpack_from(order + "HH", header, 42))
    )
    text = _read(descriptor, each * count, table)
    segments = [_segment(text, each * number, order, is_64=is_64) for number in range(count)]
    dynamic = next((one for one in segments if one.kind == _DYNAMIC), None)
    if dynamic is None:
        return []
    pair = struct.Struct(order + ("qQ" if is_64 else "iI"))
    entries = _read(descriptor, dynamic.size - dynamic.size % pair.size, dynamic.offset)
    names, where = [], dict[int, int]()
    for tag, value in pair.iter_unpack(entries):
        if tag == _NULL:
            break
        if tag == _NEEDED:
            names.append(value)
        where[tag] = value
    if not names:
        return []
    start = _offset(segments, where.get(_STRINGS, -1))
    strings = _read(descriptor, where.get(_STRINGS_SIZE, 0), start)
    # Users may have written what a rollback brings back: 65,000 names of a megabyte each, with one text.
    return [strings[name : strings.index(b"\0", name, name + _LONGEST)] for name in names[:_MOST_NAMES]]


def _segment(text: bytes, at: int, order: str, *, is_64: bool) -> _Segment:
    if is_64:
        kind, _, offset, address, _, size = struct.unpack_from(order + "IIQQQQ", text, at)
    else:
        kind, offset, address, _, size = struct.unpack_from(order + "5I", text, at)
    return _Segment(kind, offset, address, size)


def _offset(segments: list[_Segment], address: int) -> int:
    """Convert an address in memory to the offset in the file."""
    for one in segments:
        if one.kind == _LOAD and one.address <= address < one.address + one.size:
            return one.offset + address - one.address
    raise ValueError("the address is of no segment")


def _read(descriptor: int, size: int, offset: int) -> bytes:
    if not 0 <= size <= _MOST:
        raise ValueError("a table has an impossible size")
    data = os.pread(descriptor, size, offset)
    if len(data) != size:
        raise ValueError("the file was cut off")
    return data
