"""The compiled image core; enroot/build_cffi.py lists what is in it. Used by jail.image_core alone."""

from typing import Any

ffi: Any
lib: Any
