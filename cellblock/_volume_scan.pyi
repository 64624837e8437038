# SPDX-License-Identifier: Apache-2.0
"""The compiled comparison of manifests with trees; see native/tree_check. Used by jail.tree_check alone."""

from typing import Any

ffi: Any
lib: Any
