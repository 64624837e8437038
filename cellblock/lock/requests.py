"""What the declared images ask for, as the resolver wants it."""

from __future__ import annotations

from collections.abc import Mapping

from cellblock.definition import Image
from cellblock.graph import build_order
from cellblock.lock.resolve import Request
from cellblock.template import Renderer
from cellblock.variants import Variant


def requests_of(variant: Variant, images: Mapping[str, Image]) -> dict[str, Request]:
    """A request for each image that holds packages, parents first.

    Raises DefinitionError when a template is wrong or images need each other in a circle.
    """
    renderer = Renderer(variant)
    requests: dict[str, Request] = {}
    for image in build_order(images, images):
        if image.fields.build:
            continue  # holds only what was compiled
        packages = []
        for number, template in enumerate(image.fields.packages):
            where = f"{image.source.path}:{image.source.line(('packages', number))}: packages.{number}"
            # One template can stand for a list of packages, or for none.
            packages += renderer.text(template, where).split()
        where = f"{image.source.path}:{image.source.line(('packages',))}"
        requests[image.name] = Request(image.fields.parent, tuple(packages), where)
    return requests
