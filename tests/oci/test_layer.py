# SPDX-License-Identifier: Apache-2.0
"""A tree is written as a layer: the same bytes each time, and all that a tree can hold."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest
import zstandard

from cellblock.build.unpack_layer import unpack_layer
from cellblock.errors import CellblockError, UsageError
from cellblock.oci.layer import Compression, Frame, Layer, open_layer, store_layer
from cellblock.oci.layout import Layout
from cellblock.store.record import LayerRecord

EPOCH = 1_700_000_000
NONE = Compression.parse("none")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="overlayfs' marks can only be made by root")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "layout")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "etc").mkdir(parents=True)
    (folder / "etc/hello").write_text("hello\n")
    return folder


def members(layout: Layout, layer: Layer) -> dict[str, tarfile.TarInfo]:
    with open_layer(layout.blob(layer.descriptor.digest)) as stream:
        return {member.name: member for member in tarfile.open(fileobj=stream, mode="r|")}


def whiteout(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))


def test_the_same_tree_gives_the_same_bytes_elsewhere_and_later(layout: Layout, tmp_path: Path) -> None:
    layers = []
    for name in ("one", "other"):
        folder = tmp_path / name
        for path in ("b", "a") if name == "one" else ("a", "b"):
            (folder / path).mkdir(parents=True)
            (folder / path / "x").write_text(path)
        layers.append(store_layer(folder, (), layout, EPOCH))
    assert layers[0] == layers[1]


def test_no_time_is_after_the_epoch_and_earlier_ones_stay(layout: Layout, tree: Path) -> None:
    os.utime(tree / "etc/hello", (1000, 1000))
    found = members(layout, store_layer(tree, (), layout, EPOCH))
    assert found["etc/hello"].mtime == 1000
    assert found["etc"].mtime == EPOCH


@pytest.mark.parametrize("compression", ["zstd", "zstd:9", "gzip", "gzip:1", "none"])
def test_the_diff_id_does_not_depend_on_the_compression(layout: Layout, tree: Path, compression: str) -> None:
    plain = store_layer(tree, (), layout, EPOCH, NONE)
    layer = store_layer(tree, (), layout, EPOCH, Compression.parse(compression))
    assert layer.diff_id == plain.diff_id == plain.descriptor.digest
    assert layer.uncompressed == plain.uncompressed
    assert members(layout, layer).keys() == {"etc", "etc/hello"}


def test_names_of_any_bytes_and_any_length_come_through(layout: Layout, tree: Path) -> None:
    long = "/".join(["d" * 60] * 4)
    (tree / long).mkdir(parents=True)
    strange = os.fsencode(tree / long) + b"/-f \xff\n*"
    with open(strange, "wb"):  # noqa: PTH123 - the name is bytes
        pass
    found = members(layout, store_layer(tree, (), layout, EPOCH))
    assert f"{long}/{os.fsdecode(strange).rpartition('/')[2]}" in found


def test_hard_links_are_one_file(layout: Layout, tree: Path) -> None:
    os.link(tree / "etc/hello", tree / "etc/world")
    found = members(layout, store_layer(tree, (), layout, EPOCH))
    assert found["etc/world"].islnk()
    assert found["etc/world"].linkname == "etc/hello"


@needs_root
def test_what_overlayfs_marks_as_removed_becomes_a_whiteout(layout: Layout, tree: Path) -> None:
    whiteout(tree / "etc/gone")
    found = members(layout, store_layer(tree, (), layout, EPOCH))
    assert found.keys() == {"etc", "etc/hello", "etc/.wh.gone"}
    assert found["etc/.wh.gone"].size == 0


@needs_root
def test_a_folder_is_opaque_only_where_it_hides_another(layout: Layout, tree: Path, tmp_path: Path) -> None:
    os.setxattr(tree / "etc", "trusted.overlay.opaque", b"y")
    below = tmp_path / "below"
    below.mkdir()
    assert members(layout, store_layer(tree, [below], layout, EPOCH)).keys() == {"etc", "etc/hello"}
    (below / "etc").mkdir()
    assert "etc/.wh..wh..opq" in members(layout, store_layer(tree, [below], layout, EPOCH))


@needs_root
def test_a_layer_unpacked_again_is_the_same_layer(layout: Layout, tree: Path, tmp_path: Path) -> None:
    below = tmp_path / "below"
    (below / "etc").mkdir(parents=True)
    os.setxattr(tree / "etc", "trusted.overlay.opaque", b"y")
    whiteout(tree / "gone")
    (tree / "ping").write_text("x")
    os.chown(tree / "ping", 7, 8)
    (tree / "ping").chmod(0o4755)
    # cap_net_raw=ep, as capability.h's struct vfs_cap_data has it.
    os.setxattr(
        tree / "ping", "security.capability", bytes.fromhex("0100000200200000000000000000000000000000")
    )
    os.mkfifo(tree / "fifo")
    first = store_layer(tree, [below], layout, EPOCH)
    record = LayerRecord(
        "files", "t", "k", first.descriptor.digest, first.diff_id, first.descriptor.size, first.uncompressed
    )
    unpack_layer(layout, record, tmp_path / "again")
    assert store_layer(tmp_path / "again", [below], layout, EPOCH) == first
    assert (tmp_path / "again/ping").stat().st_mode & 0o7777 == 0o4755


@needs_root
def test_a_damaged_blob_is_named_when_it_is_unpacked(layout: Layout, tree: Path, tmp_path: Path) -> None:
    layer = store_layer(tree, (), layout, EPOCH, NONE)
    blob = layout.blob(layer.descriptor.digest)
    blob.write_bytes(b"nonsense" * 200)
    record = LayerRecord(
        "files", "t", "k", layer.descriptor.digest, layer.diff_id, layer.descriptor.size, layer.uncompressed
    )
    with pytest.raises(CellblockError, match=blob.name):
        unpack_layer(layout, record, tmp_path / "again")


@pytest.mark.parametrize("text", ["xz", "zstd:0", "zstd:20", "gzip:x", "none:1", ""])
def test_a_compression_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"no compression '{text}'"):
        Compression.parse(text)


def test_what_is_compressed_already_is_taken_as_it_is(tree: Path, layout: Layout, tmp_path: Path) -> None:
    whole = store_layer(tree, (), layout, EPOCH)
    name = "etc/hello"
    entry = tarfile.TarInfo(f"./{name}")
    entry.size, entry.mtime = (tree / name).stat().st_size, 1
    body = (tree / name).read_bytes()
    raw = entry.tobuf(tarfile.GNU_FORMAT) + body + b"\0" * (-len(body) % 512)
    frame = tmp_path / "frame"
    frame.write_bytes(zstandard.compress(raw, 19))
    layer = store_layer(tree, (), layout, EPOCH, frames=[Frame(frame, frozenset({name.encode()}))])
    blob = layout.blob(layer.descriptor.digest).read_bytes()
    assert frame.read_bytes() in blob
    # By a decompressor that is not ours, as those who pull it have.
    plain = subprocess.run(["zstd", "-dc"], input=blob, capture_output=True, check=True).stdout
    assert f"sha256:{hashlib.sha256(plain).hexdigest()}" == layer.diff_id
    assert len(plain) == layer.uncompressed
    names = {path.removeprefix("./") for path in members(layout, layer)}
    assert names == members(layout, whole).keys()
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        assert sorted(tar.getnames()) == ["./etc/hello", "etc"]
    frame.write_bytes(b"no frame")
    with pytest.raises(CellblockError, match="cannot be written as a layer"):
        store_layer(tree, (), layout, EPOCH, frames=[Frame(frame, frozenset({name.encode()}))])
