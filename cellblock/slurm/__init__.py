# SPDX-License-Identifier: Apache-2.0
"""Compiles a release tarball of Slurm, packages it, and offers the packages to apt as an archive.

The packages have the names that Debian's and Ubuntu's have, so an image asks for `slurmd` in either case.
"""

from __future__ import annotations

from cellblock.slurm.repository import SlurmRepository
from cellblock.slurm.toolchain import Toolchain

__all__ = ["SlurmRepository", "Toolchain"]
