# SPDX-License-Identifier: Apache-2.0
"""Every difference in bytes between two images is found and shown."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

from cellblock.inspect.compare import Difference, compare_images
from cellblock.oci.layout import Layout, StoredImage
from cellblock.oci.model import LAYER_GZIP, LAYER_ZSTD, Descriptor
from tests.inspect.test_diff import Layer
from tests.oci.layers import make_image, member

BASE: Layer = [member("etc"), member("etc/passwd", "root\n")]


def compare(folder: Path, one: list[Layer], other: list[Layer]) -> list[Difference]:
    """Two layouts: what was built again need not lie beside what is there."""
    first, second = Layout(folder / "1"), Layout(folder / "2")
    return compare_images(first, make_image(first, "x", *one), second, make_image(second, "x", *other))


def timed(path: str, content: str, mtime: float) -> tuple[tarfile.TarInfo, bytes]:
    info, data = member(path, content)
    info.mtime = mtime
    return info, data


def test_the_same_image_has_no_differences(tmp_path: Path) -> None:
    assert compare(tmp_path, [BASE], [BASE]) == []


def test_a_small_text_is_shown_line_by_line_with_the_layer_it_is_in(tmp_path: Path) -> None:
    found = compare(
        tmp_path,
        [BASE, [member("etc/key", "a\nsame\n1\n")]],
        [BASE, [member("etc/key", "a\nsame\n2\n")]],
    )
    assert found == [
        Difference(2, "etc/key", ("content, 9 bytes as before",), ("@@ -2,2 +2,2 @@", " same", "-1", "+2"))
    ]


def test_bytes_are_not_shown_as_text(tmp_path: Path) -> None:
    found = compare(tmp_path, [[member("f", b"\0a")]], [[member("f", b"\0b")]])
    assert [(each.path, each.lines) for each in found] == [("f", ())]


def test_a_time_is_a_difference_here(tmp_path: Path) -> None:
    found = compare(tmp_path, [[timed("f", "x", 1)]], [[timed("f", "x", 2.5)]])
    assert found[0].what == ("time 1970-01-01T00:00:01Z -> 1970-01-01T00:00:02.5Z",)


def test_a_file_of_only_one_is_described(tmp_path: Path) -> None:
    found = compare(tmp_path, [BASE], [[*BASE, member("etc/munge.key", "x" * 1024, mode=0o400)]])
    assert found == [Difference(1, "etc/munge.key", ("only in the second: file 0400 0:0 1.0 kB",))]


def test_another_order_in_the_archive_is_found(tmp_path: Path) -> None:
    found = compare(tmp_path, [[member("a", "1"), member("b", "2")]], [[member("b", "2"), member("a", "1")]])
    assert [each.path for each in found] == ["a"]
    assert "another place in the archive" in found[0].what[0]


def test_headers_that_say_the_same_in_other_words_are_found(tmp_path: Path) -> None:
    info, data = member("f", "x")
    named = tarfile.TarInfo("f")
    named.size, named.mode, named.uname = info.size, info.mode, "root"
    found = compare(tmp_path, [[(info, data)]], [[(named, data)]])
    assert [each.what for each in found] == [
        ("all entries are equal, but not the bytes of their headers or padding",)
    ]


def test_another_compression_of_the_same_archive_is_named_so(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    one = make_image(layout, "1", BASE, media_type=LAYER_GZIP)
    other = make_image(layout, "2", BASE, media_type=LAYER_ZSTD)
    found = compare_images(layout, one, layout, other)
    assert "the same archive, compressed to other bytes" in found[0].what[0]
    assert any("media types of layers" in each.what[0] for each in found)


def test_a_whiteout_of_only_one_is_found(tmp_path: Path) -> None:
    found = compare(tmp_path, [BASE, [member("etc/.wh.passwd", "")]], [BASE, [member("etc/.wh.group", "")]])
    assert [(each.path, each.what) for each in found] == [
        ("etc/group", ("only the second removes it",)),
        ("etc/passwd", ("only the first removes it",)),
    ]


def test_settings_history_and_the_number_of_layers_count(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    image = make_image(layout, "x", BASE)
    changed = replace(image.configuration, created="2026-01-01T00:00:00Z", settings={"Cmd": ["bash"]})
    other = StoredImage(
        Descriptor(image.descriptor.media_type, "sha256:" + "0" * 64, 1),
        replace(image.manifest, layers=()),
        changed,
    )
    found = [each.what[0] for each in compare_images(layout, image, layout, other)]
    assert "1 layers -> 0" in found
    assert 'configuration: Cmd null -> ["bash"]' in found
    assert 'configuration: created "1970-01-01T00:00:00Z" -> "2026-01-01T00:00:00Z"' in found
