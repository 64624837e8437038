# SPDX-License-Identifier: Apache-2.0
"""The compiled image core; native/cffi/image_core.py lists what is in it. Used by jail.image_core alone."""

from typing import Any

ffi: Any
lib: Any
