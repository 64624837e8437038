# SPDX-License-Identifier: Apache-2.0
"""Adds NVIDIA's own repository of CUDA as an archive for apt: its key checked, its version pinned."""

from __future__ import annotations

from cellblock.cuda.repository import CudaRepository

__all__ = ["CudaRepository"]
