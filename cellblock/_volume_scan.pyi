"""The compiled comparison of manifests with trees; see cellblock/jail/scan. Used by jail.tree_check alone."""

from typing import Any

ffi: Any
lib: Any
