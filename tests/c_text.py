# SPDX-License-Identifier: Apache-2.0
"""Turns strings and errors of the compiled C code into Python's text."""

from __future__ import annotations

import os
from typing import Any

# Bytes: file, target and message of a `struct jail_error`, and what stands between them, are fewer.
_LINE = 1400


def text_of(ffi: Any, pointer: Any) -> str:
    """A string or a field of characters; what is no UTF-8, as Python has it in names of files."""
    raw: bytes = ffi.string(pointer)
    return os.fsdecode(raw)


def error_text(ffi: Any, lib: Any, err: Any) -> str:
    """A `struct jail_error` as one line. `lib` has `jail_error_format`."""
    buffer = ffi.new("char[]", _LINE)
    lib.jail_error_format(err, buffer, len(buffer))
    return text_of(ffi, buffer)
