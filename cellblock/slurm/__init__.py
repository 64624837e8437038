# SPDX-License-Identifier: Apache-2.0
"""Slurm from a release tarball: compiled in a throwaway root, packaged, and offered to apt as an archive.

The packages bear the names that Debian's and Ubuntu's have, so an image asks for `slurmd` whoever made it.
"""

from __future__ import annotations

from cellblock.slurm.repository import SlurmRepository
from cellblock.slurm.toolchain import Toolchain

__all__ = ["SlurmRepository", "Toolchain"]
