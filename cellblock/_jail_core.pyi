# SPDX-License-Identifier: Apache-2.0
"""The compiled mount core; native/cffi/jail_core.py lists what is in it. Tests alone use it, by tests.spank_jail.mount_core."""

from typing import Any

ffi: Any
lib: Any
