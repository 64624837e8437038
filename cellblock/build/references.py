# SPDX-License-Identifier: Apache-2.0
"""Forms the names of a variant's images, in Cellblock's own store and in that of podman or Docker.

One name says image and variant, the other the image's key: if that one exists, nothing is to be built.
"""

from __future__ import annotations

from cellblock.cache_key import Key
from cellblock.variants import Variant

LABEL = "org.cellblock"

KEPT_BUILDS = 3
"""Earlier builds of an image that are kept beside the newest.

Going back and forth between two states of a tree (branches, say) builds nothing, and a disk does not fill up
with the others.
"""


def reference(image: str, variant: Variant) -> str:
    """The name under which an image of a variant is tagged."""
    return f"localhost/cellblock/{image}:{variant.name}"


def key_prefix(image: str, variant: Variant) -> str:
    """What the names of all builds of an image begin with."""
    return f"{reference(image, variant)}.key-"


def key_reference(image: str, variant: Variant, key: Key) -> str:
    """The name that says which inputs an image was made of: finding it means nothing to do."""
    return key_prefix(image, variant) + key.short
