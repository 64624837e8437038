# SPDX-License-Identifier: Apache-2.0
"""Builds the images of a variant: plans them, keeps those that exist, makes the others side by side.

prepare.py plans, run.py carries out, and engine/ has the docker engine.
"""

from __future__ import annotations

from cellblock.build.request import BuildRequest, BuildResult
from cellblock.build.run import build_images, copy_images

__all__ = ["BuildRequest", "BuildResult", "build_images", "copy_images"]
