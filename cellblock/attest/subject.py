# SPDX-License-Identifier: Apache-2.0
"""The image that a document is about: where it is stored, and its names."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cellblock.oci.layout import Layout, StoredImage

_REFERENCE = re.compile(r"(?:.*/)?(?P<name>[^/:@]+)(?::(?P<tag>[^:/@]+))?(?:@sha256:[0-9a-f]+)?")


@dataclass(frozen=True)
class Subject:
    """An image in a layout. `name` is its role (`worker`), `variant` what it was built for (`debian13`)."""

    name: str
    variant: str
    reference: str
    layout: Layout
    image: StoredImage


def subject(layout: Layout, reference: str, stored_as: str | None = None) -> Subject:
    """The image called `reference`, of which the last part is `NAME:VARIANT`.

    `stored_as` is its name or digest in `layout`, when it has another there. Raises CellblockError when
    the layout has no such image.
    """
    parsed = _REFERENCE.fullmatch(reference)
    name, variant = (parsed["name"], parsed["tag"] or "") if parsed else (reference, "")
    return Subject(name, variant, reference, layout, layout.image(stored_as or reference))
