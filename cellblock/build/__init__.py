# SPDX-License-Identifier: Apache-2.0
"""Builds the images of a variant: plans, finds what exists, makes the rest side by side."""

from __future__ import annotations

from cellblock.build.request import BuildRequest, BuildResult
from cellblock.build.run import build_images, copy_images

__all__ = ["BuildRequest", "BuildResult", "build_images", "copy_images"]
