# SPDX-License-Identifier: Apache-2.0
"""Defines the image that a bill of materials or provenance describes: where it is stored, and its names."""

from __future__ import annotations

from dataclasses import dataclass

from cellblock.oci.layout import Layout, StoredImage


@dataclass(frozen=True)
class Subject:
    """An image in a layout. `name` is its role (`worker`), `variant` what it was built for (`debian13`)."""

    name: str
    variant: str
    reference: str
    layout: Layout
    image: StoredImage
