# SPDX-License-Identifier: Apache-2.0
"""What an image holds, read from its layers: whiteouts, links, contents, damage."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from cellblock.errors import CellblockError
from cellblock.oci.capability import XATTR, describe_capabilities
from cellblock.oci.contents import Contents, ContentsReader, Keep
from cellblock.oci.layout import Layout
from cellblock.oci.model import MalformedImage
from tests.oci.layers import COMPRESSORS, make_image, member


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "layout")


def contents(
    layout: Layout, *layers: Sequence[tuple[tarfile.TarInfo, bytes]], keep: Keep | None = None
) -> Contents:
    image = make_image(layout, "it", *layers)
    return ContentsReader(layout, keep=keep or (lambda _: True), digests=True).image(image)


@pytest.mark.parametrize("media_type", COMPRESSORS)
def test_a_layer_is_read_however_it_is_compressed(layout: Layout, media_type: str) -> None:
    image = make_image(layout, "it", [member("etc"), member("etc/motd", "hello")], media_type=media_type)
    found = ContentsReader(layout, keep=lambda _: True, digests=True).image(image)
    assert list(found.entries) == ["etc", "etc/motd"]
    assert found.read("/etc/motd") == b"hello"
    assert found.entries["etc/motd"].digest == hashlib.sha256(b"hello").hexdigest()


def test_everything_that_a_tar_says_of_a_file_is_kept(layout: Layout) -> None:
    found = contents(
        layout,
        [
            member("bin/ping", b"\x7fELF", mode=0o4711, owner=(1, 2), xattrs={"user.x": b"\xff\0"}),
            member("dev/null", device=(1, 3)),
            member("./bin/p/", mode=0o1777),
            member("bin/l", link="ping"),
        ],
    )
    ping = found.entries["bin/ping"]
    assert (ping.kind, ping.mode, ping.uid, ping.gid, ping.size) == ("file", 0o4711, 1, 2, 4)
    assert ping.xattr("user.x") == b"\xff\0"
    assert (found.entries["dev/null"].kind, found.entries["dev/null"].device) == ("character", (1, 3))
    assert (found.entries["bin/p"].kind, found.entries["bin/p"].mode) == ("directory", 0o1777)
    assert (found.entries["bin/l"].kind, found.entries["bin/l"].target) == ("symlink", "ping")


def test_a_name_that_is_no_utf8_survives(layout: Layout) -> None:
    assert "etc/\udcff" in contents(layout, [member("etc/\udcff", "x")]).entries


def test_an_upper_layer_wins_and_is_named(layout: Layout) -> None:
    found = contents(layout, [member("a", "1"), member("b", "1")], [member("a", "2")])
    assert found.read("a") == b"2"
    assert (found.entries["a"].layer, found.entries["b"].layer) == (1, 0)


def test_a_whiteout_removes_what_is_below_and_only_that(layout: Layout) -> None:
    found = contents(
        layout,
        [member("d"), member("d/x", "1"), member("d/y", "1"), member("e"), member("e/z", "1")],
        [member("d/.wh.x", ""), member(".wh.e", ""), member("d/new", "1")],
    )
    assert list(found.entries) == ["d", "d/new", "d/y"]
    assert found.layers[1].removed == {"d/x", "e"}


def test_an_opaque_directory_keeps_only_what_its_own_layer_brings(layout: Layout) -> None:
    found = contents(
        layout,
        [member("d"), member("d/x", "1")],
        [member("d"), member("d/y", "2"), member("d/.wh..wh..opq", "")],
    )
    assert list(found.entries) == ["d", "d/y"]


def test_a_directory_that_becomes_a_file_takes_its_files_along(layout: Layout) -> None:
    assert list(contents(layout, [member("d"), member("d/x", "1")], [member("d", "now")]).entries) == ["d"]


def test_names_of_one_file_are_hard_links_to_the_first(layout: Layout) -> None:
    found = contents(
        layout, [member("b", "same", mode=0o755), member("c", hard="b"), member("a", hard="./b")]
    )
    assert {path: (entry.kind, entry.target) for path, entry in found.entries.items()} == {
        "a": ("file", ""),
        "b": ("hardlink", "a"),
        "c": ("hardlink", "a"),
    }
    assert {found.read(path) for path in "abc"} == {b"same"}
    assert {(entry.mode, entry.size, entry.digest is not None) for entry in found.entries.values()} == {
        (0o755, 4, True)
    }


def test_a_hard_link_to_a_lower_layer_outlives_the_name_it_was_made_from(layout: Layout) -> None:
    below = [member("a", "same")]
    found = contents(layout, below, [member("b", hard="a")], [member(".wh.a", "")])
    assert (found.entries["b"].kind, found.read("b"), found.entries["b"].size) == ("file", b"same", 4)


def test_a_hard_link_to_nothing_is_refused(layout: Layout) -> None:
    with pytest.raises(MalformedImage, match="hard link to /gone"):
        contents(layout, [member("a", hard="gone")])


def test_symbolic_links_are_followed_inside_the_image(layout: Layout) -> None:
    found = contents(
        layout,
        [
            member("usr/lib"),
            member("usr/lib/os-release", "ID=debian"),
            member("lib", link="/usr/lib"),
            member("etc/os-release", link="../../../lib/os-release"),
            member("loop", link="loop"),
            member("away", link="nowhere"),
        ],
    )
    assert found.read("/etc/os-release") == b"ID=debian"
    assert found.resolve("loop") is None
    assert found.resolve("away") is None


def test_only_what_is_asked_for_is_kept(layout: Layout) -> None:
    found = contents(layout, [member("a", "1"), member("b", "2")], keep=lambda entry: entry.path == "a")
    assert (found.read("a"), found.read("b")) == (b"1", None)


def test_a_layer_of_two_images_is_read_once(layout: Layout) -> None:
    asked: list[str] = []
    shared = [member("a", "1")]
    images = [make_image(layout, name, shared, [member(name, "2")]) for name in ("x", "y")]
    reader = ContentsReader(layout, keep=lambda entry: not asked.append(entry.path))
    assert [list(reader.image(image).entries) for image in images] == [["a", "x"], ["a", "y"]]
    assert asked == ["a", "x", "y"]


def test_a_name_that_leaves_the_root_is_refused(layout: Layout) -> None:
    with pytest.raises(MalformedImage, match=r"'\.\./etc/passwd' leaves"):
        contents(layout, [member("../etc/passwd", "x")])


@pytest.mark.parametrize("media_type", COMPRESSORS)
def test_a_layer_that_is_cut_off_is_named(layout: Layout, media_type: str) -> None:
    image = make_image(layout, "it", [member("a", bytes(range(256)) * 64)], media_type=media_type)
    blob = layout.blob(image.manifest.layers[0].digest)
    blob.write_bytes(blob.read_bytes()[: blob.stat().st_size // 2])
    with pytest.raises(MalformedImage, match=blob.name):
        ContentsReader(layout, digests=True).image(image)


def test_an_absent_layer_is_named(layout: Layout) -> None:
    image = make_image(layout, "it", [member("a", "1")])
    layout.blob(image.manifest.layers[0].digest).unlink()
    with pytest.raises(MalformedImage, match="is not there"):
        ContentsReader(layout).image(image)


def test_a_file_too_large_to_keep_is_an_error(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cellblock.oci.contents._KEEP_AT_MOST", 3)
    with pytest.raises(CellblockError, match="/a of an image has 4 bytes"):
        contents(layout, [member("a", "1234")])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        # As setcap(8) of libcap 2.66 writes them.
        ("0100000200200000000000000000000000000000", "cap_net_raw=ep"),
        ("0000000200200000000000000000000000000000", "cap_net_raw=p"),
        ("0100000200000000000000008000000000000000", "cap_bpf=ep"),
        ("0100000300200000002000000000000000000000e8030000", "cap_net_raw=eip"),
    ],
)
def test_capabilities_are_put_in_words(value: str, words: str) -> None:
    assert describe_capabilities(bytes.fromhex(value)) == words


def test_capabilities_of_a_layer_are_read(layout: Layout) -> None:
    value = bytes.fromhex("0100000200200000000000000000000000000000")
    found = contents(layout, [member("ping", "x", xattrs={XATTR: value})])
    assert found.entries["ping"].xattr(XATTR) == value


def test_damaged_capabilities_are_refused() -> None:
    with pytest.raises(MalformedImage, match="no file capability"):
        describe_capabilities(b"\1\0\0\2")
