# SPDX-License-Identifier: Apache-2.0
"""A layout of images: names, blobs, garbage, and several processes at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock.errors import CellblockError
from cellblock.oci.layout import Layout
from cellblock.oci.model import (
    CONFIG,
    EMPTY,
    LAYER_TAR,
    Configuration,
    Descriptor,
    MalformedImage,
    Manifest,
    Platform,
    digest_of_bytes,
)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "layout")


def add(layout: Layout, content: bytes, *names: str) -> str:
    """An image of one layer; returns its digest."""
    layer = layout.write(content, LAYER_TAR)
    configuration = Configuration(Platform("linux", "amd64"), (layer.digest,))
    data = configuration.to_bytes()
    config = Descriptor(CONFIG, digest_of_bytes(data), len(data))
    return layout.add(Manifest(config, (layer,)), configuration, names).digest


def attach(layout: Layout, subject: str) -> Descriptor:
    empty = layout.write(b"{}", EMPTY)
    about = layout.image(subject).descriptor
    return layout.attach(Manifest(empty, (empty,), subject=about, artifact_type="text/x"))


def test_an_image_is_found_by_each_name_and_by_digest(layout: Layout) -> None:
    digest = add(layout, b"one", "a", "b")
    assert {layout.image(name).digest for name in ("a", "b", digest)} == {digest}


def test_a_name_moves_to_the_image_that_takes_it(layout: Layout) -> None:
    add(layout, b"one", "a")
    second = add(layout, b"two", "a")
    assert layout.image("a").digest == second


def test_an_unknown_name_is_an_error_that_lists_the_known(layout: Layout) -> None:
    add(layout, b"one", "a")
    with pytest.raises(CellblockError, match="no image 'c'; there are: a"):
        layout.image("c")


def test_the_same_image_has_the_same_digest_in_two_layouts(tmp_path: Path) -> None:
    assert add(Layout(tmp_path / "1"), b"x", "a") == add(Layout(tmp_path / "2"), b"x", "b")


def test_a_damaged_blob_is_named(layout: Layout) -> None:
    digest = add(layout, b"one", "a")
    layout.blob(digest).write_bytes(b"{}")
    with pytest.raises(MalformedImage, match=digest.removeprefix("sha256:")):
        layout.image("a")


def test_a_blob_of_another_digest_than_expected_is_not_stored(layout: Layout) -> None:
    wrong = digest_of_bytes(b"other")
    with pytest.raises(MalformedImage, match="another digest"), layout.writer(expected=wrong) as writer:
        writer.write(b"one")
    assert not layout.has(wrong)
    assert not layout.has(digest_of_bytes(b"one"))


def test_garbage_is_what_no_name_leads_to(layout: Layout) -> None:
    gone, kept = add(layout, b"one", "a"), add(layout, b"two", "b")
    layout.untag(["a"])
    assert layout.collect_garbage() > 0
    assert not layout.has(gone)
    assert layout.image("b").digest == kept


def test_nothing_is_collected_while_somebody_writes(layout: Layout) -> None:
    with layout.writing():
        blob = layout.write(b"unnamed", LAYER_TAR)
        layout.collect_garbage()
        assert layout.has(blob.digest)


def test_an_artifact_is_found_by_its_subject_and_goes_with_it(layout: Layout) -> None:
    digest = add(layout, b"one", "a")
    artifact = attach(layout, "a")
    assert [each.digest for each in layout.referrers(digest)] == [artifact.digest]
    layout.untag(["a"])
    layout.collect_garbage()
    layout.collect_garbage()
    assert layout.referrers(digest) == []
    assert not layout.has(artifact.digest)


def test_an_image_is_copied_with_all_its_blobs(layout: Layout, tmp_path: Path) -> None:
    digest = add(layout, b"one", "a")
    target = Layout(tmp_path / "target")
    layout.copy_to({"new": "a"}, target)
    image = target.image("new")
    assert image.digest == digest
    assert all(target.has(layer.digest) for layer in image.manifest.layers)


def test_what_refers_to_an_image_is_copied_along_once(layout: Layout, tmp_path: Path) -> None:
    digest = add(layout, b"one", "a")
    artifact = attach(layout, "a")
    target = Layout(tmp_path / "target")
    for _ in range(2):
        layout.copy_to({"new": "a"}, target)
        assert [each.digest for each in target.referrers(digest)] == [artifact.digest]
    assert target.read(artifact.digest) == layout.read(artifact.digest)


def test_a_detached_artifact_is_garbage(layout: Layout) -> None:
    digest = add(layout, b"one", "a")
    artifact = attach(layout, "a")
    layout.detach([artifact.digest])
    assert layout.referrers(digest) == []
    layout.collect_garbage()
    assert not layout.has(artifact.digest)
    assert layout.image("a").digest == digest
