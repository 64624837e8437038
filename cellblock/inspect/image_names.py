# SPDX-License-Identifier: Apache-2.0
"""Finds the images that a person named: by name, reference, digest, place on disk, or a whole variant.

`build.py diff` uses it, because its images need not be built by this checkout.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from cellblock.errors import CellblockError, UsageError
from cellblock.inspect.diff import NamedImage
from cellblock.oci.layout import Layout
from cellblock.store.image_store import PREFIX
from cellblock.yaml_source import nearest

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class ImageNames:
    """Finds images in `store`. `images` and `variants` are the declared names, `default` the variant to take.

    A name is NAME (of the default variant), NAME:VARIANT, a full reference, a digest, or
    oci:DIR[:REFERENCE]. A variant means all of its images that were built.
    """

    def __init__(
        self, store: Layout, images: Collection[str], variants: Collection[str], default: str
    ) -> None:
        self._store = store
        self._images = images
        self._variants = variants
        self._default = default

    def is_variant(self, text: str) -> bool:
        """Whether `text` names a variant; an image of that name goes first."""
        return text in self._variants and text not in self._images

    def variant(self, name: str) -> Mapping[str, NamedImage]:
        """All built images of a variant, by the images' names. Raises UsageError when there are none."""
        found = {
            reference.removeprefix(PREFIX).partition(":")[0]: NamedImage(
                reference.removeprefix(PREFIX), self._store, self._store.stored(descriptor)
            )
            for reference, descriptor in sorted(self._store.references().items())
            if reference.startswith(PREFIX) and reference.endswith(f":{name}")
        }
        if not found:
            raise UsageError(
                f"no image of the variant {name} was built in this checkout",
                hint=f"`build.py build -v {name}`",
            )
        return found

    def image(self, text: str) -> NamedImage:
        """One image. Raises UsageError when there is none of that name, with the next step."""
        if text.startswith("oci:"):
            return _of_layout(text)
        known = self._store.references()
        for reference in (text, f"{PREFIX}{text}", f"{PREFIX}{text}:{self._default}"):
            if reference in known:
                return NamedImage(
                    reference.removeprefix(PREFIX), self._store, self._store.stored(known[reference])
                )
        if _DIGEST.fullmatch(text) and self._store.has(text):
            return NamedImage(text[:19], self._store, self._store.image(text))
        name, _, variant = text.removeprefix(PREFIX).partition(":")
        if name in self._images and (variant or self._default) in self._variants:
            variant = variant or self._default
            raise UsageError(
                f"{name} of {variant} was not built in this checkout",
                hint=f"build it: `build.py build {name} -v {variant}`",
            )
        built = [reference.removeprefix(PREFIX) for reference in known if ".key-" not in reference]
        near = nearest(text, [*self._images, *self._variants, *built])
        raise UsageError(f"there is no image '{text}'; {near}", hint="see `build.py targets`")


def _of_layout(text: str) -> NamedImage:
    """Of oci:DIR[:REFERENCE]; a reference has colons too, and so may a folder's name."""
    place = text.removeprefix("oci:")
    cuts = [at for at, letter in enumerate(place) if letter == ":"] + [len(place)]
    cut = next((at for at in cuts if (Path(place[:at]) / "index.json").is_file()), None)
    if cut is None:
        raise UsageError(
            f"{text}: there is no OCI layout", hint="name its folder: oci:DIR or oci:DIR:REFERENCE"
        )
    layout, reference = Layout(Path(place[:cut])), place[cut + 1 :]
    known = layout.references()
    if not reference and len(known) != 1:
        raise UsageError(
            f"{text}: there are {len(known)} images in it: {', '.join(sorted(known)) or 'none has a name'}",
            hint=f"name one: {text}:REFERENCE",
        )
    try:
        return NamedImage(text, layout, layout.image(reference or next(iter(known))))
    except CellblockError as error:
        raise UsageError(error.message, hint=f"name one: oci:{place[:cut]}:REFERENCE") from error
