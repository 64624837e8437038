# SPDX-License-Identifier: Apache-2.0
"""Defines the interface by which Slurm is compiled: a temporary root with compilers that runs shell lines.

build/toolchain.py implements it. So this folder imports nothing of cellblock/build.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from cellblock.bind_mount import BindMount


class Workshop(Protocol):
    """A root that is thrown away afterwards; what one `run` writes, the next one finds."""

    def run(
        self,
        lines: Sequence[str],
        *,
        binds: Sequence[BindMount] = (),
        on_line: Callable[[str], None],
    ) -> object:
        """Run shell lines with `sh -euc`. Raises ProgramFailed."""
        ...


class Toolchain(Protocol):
    """Makes workshops of one distribution that hold given packages."""

    def key(self, packages: Sequence[str]) -> str:
        """Changes when a workshop with `packages` would be another."""
        ...

    def workshop(
        self, packages: Sequence[str], on_line: Callable[[str], None]
    ) -> AbstractContextManager[Workshop]:
        """A workshop with `packages` installed. Raises ProgramFailed when they cannot be."""
        ...
