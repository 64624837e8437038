# SPDX-License-Identifier: Apache-2.0
"""The compiled reader of container options; see pyxis/build_cffi.py. Only tests use it."""

from typing import Any

ffi: Any
lib: Any
