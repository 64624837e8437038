"""The compiled mount core; spank_jail/build_cffi.py lists what is in it. Used by jail.mount_core alone."""

from typing import Any

ffi: Any
lib: Any
