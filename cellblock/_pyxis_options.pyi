"""The compiled reader of container options; see pyxis/build_cffi.py. Used by container_request alone."""

from typing import Any

ffi: Any
lib: Any
