# SPDX-License-Identifier: Apache-2.0
"""The compiled mount core, which tests alone use: native/cffi/jail_core.py lists what is in it."""

from typing import Any

ffi: Any
lib: Any
