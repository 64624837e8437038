# SPDX-License-Identifier: Apache-2.0
"""The ways in which a person may name an image."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock.errors import UsageError
from cellblock.inspect.image_names import ImageNames
from cellblock.oci.layout import Layout
from tests.oci.layers import make_image, member


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "with:colon")
    for name in ("worker:debian13", "worker:debian12", "jail:debian13"):
        make_image(layout, f"localhost/cellblock/{name}", [member("name", name)])
    return layout


@pytest.fixture
def names(layout: Layout) -> ImageNames:
    return ImageNames(layout, ("worker", "jail", "login"), ("debian12", "debian13"), "debian13")


@pytest.mark.parametrize("text", ["worker", "worker:debian13", "localhost/cellblock/worker:debian13"])
def test_an_image_goes_by_its_name_with_and_without_variant(names: ImageNames, text: str) -> None:
    assert names.image(text).name == "worker:debian13"


def test_an_image_goes_by_its_digest(names: ImageNames, layout: Layout) -> None:
    digest = layout.image("localhost/cellblock/worker:debian12").digest
    assert names.image(digest).image.digest == digest


def test_an_image_of_a_layout_elsewhere_goes_by_its_reference(names: ImageNames, layout: Layout) -> None:
    name = "localhost/cellblock/worker:debian12"
    assert names.image(f"oci:{layout.folder}:{name}").image.digest == layout.image(name).digest


def test_the_only_image_of_a_layout_needs_no_reference(names: ImageNames, tmp_path: Path) -> None:
    image = make_image(Layout(tmp_path / "one"), "x", [])
    assert names.image(f"oci:{tmp_path}/one").image.digest == image.digest


def test_a_variant_means_its_images(names: ImageNames) -> None:
    assert names.is_variant("debian13")
    assert not names.is_variant("worker")
    assert set(names.variant("debian13")) == {"worker", "jail"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wroker", "there is no image 'wroker'; did you mean 'worker'"),
        ("login", "login of debian13 was not built in this checkout"),
        ("login:debian12", "`build.py build login -v debian12`"),
        ("sha256:" + "0" * 64, "there is no image 'sha256:"),
        ("oci:/nowhere", "there is no OCI layout"),
    ],
)
def test_what_is_not_there_is_said_with_the_next_step(names: ImageNames, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        names.image(text)
    assert message in str(caught.value)


def test_a_layout_of_several_images_wants_a_reference(names: ImageNames, layout: Layout) -> None:
    with pytest.raises(UsageError, match="there are 3 images in it"):
        names.image(f"oci:{layout.folder}")
    with pytest.raises(UsageError, match="there is no image 'x'"):
        names.image(f"oci:{layout.folder}:x")


def test_a_variant_without_images_is_said_with_the_next_step(names: ImageNames, tmp_path: Path) -> None:
    empty = ImageNames(Layout(tmp_path / "none"), ("worker",), ("debian13",), "debian13")
    with pytest.raises(UsageError, match="no image of the variant debian13 was built"):
        empty.variant("debian13")
