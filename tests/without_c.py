# SPDX-License-Identifier: Apache-2.0
"""Makes every compiled part of Cellblock impossible to import, as a plugin of pytest.

Tests run with it what must work where nothing was compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _Refuse(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name.startswith("cellblock._"):
            raise ModuleNotFoundError(f"{name} is not compiled here", name=name)


sys.meta_path.insert(0, _Refuse())
