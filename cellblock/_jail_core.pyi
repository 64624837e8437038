# SPDX-License-Identifier: Apache-2.0
"""The compiled mount core; native/cffi/jail_core.py lists what is in it. Used by jail.mount_core alone."""

from typing import Any

ffi: Any
lib: Any
