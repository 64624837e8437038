# SPDX-License-Identifier: Apache-2.0
"""Adds NVIDIA's apt repository of CUDA to builds of CUDA variants: its key checked, packages pinned."""

from __future__ import annotations

from cellblock.cuda.repository import CudaRepository

__all__ = ["CudaRepository"]
