# SPDX-License-Identifier: Apache-2.0
"""Layers of a few names in any combination: the image core's merge, from the top down, against a plain one.

The plain one (`plain_merge`) lays each layer over those below.
"""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from array import array
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_merge import Archive

from cellblock.errors import CellblockError
from cellblock.jail.source.image_core import ImageError, LayerBytes, Pick, Target, assembling
from cellblock.jail.source.stream import opener
from tests.jail.manifests import read_manifest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="writes owners: needs root")

NAMES = ("a", "b", "d/a", "d/b", "d/e/a", "e/a")
FOLDERS = ("d", "d/e", "e")

files = st.tuples(st.just("f"), st.sampled_from(NAMES), st.text("xyz", max_size=3))
links = st.tuples(st.just("h"), st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(
    lambda one: one[1] != one[2]
)
symlinks = st.tuples(st.just("l"), st.sampled_from((*NAMES, *FOLDERS)), st.just("target"))
folders = st.tuples(st.just("d"), st.sampled_from(FOLDERS), st.just(""))
whiteouts = st.tuples(
    st.just("f"),
    st.sampled_from((".wh.a", ".wh.d", "d/.wh.a", "d/.wh.e", "d/.wh..wh..opq", "e/.wh..wh..opq")),
    st.just(""),
)
layers = st.lists(
    st.lists(files | links | symlinks | folders | whiteouts, max_size=6, unique_by=lambda one: one[1]),
    min_size=1, max_size=4,
)  # fmt: skip


def links_ahead(members: list[tuple[str, str, str]]) -> bool:
    """Whether a hard link names what the same layer only has later, or hides later by something in the place
    of a directory above it. tar means a lower layer's file then; the core, where that name is hidden, does
    not see it. No tool writes such layers: links are to files of the same layer.
    """
    return any(
        kind == "h"
        and any(name == target or target.startswith(f"{name}/") for _, name, _ in members[number + 1 :])
        for number, (kind, _, target) in enumerate(members)
    )


def write(path: Path, members: list[tuple[str, str, str]]) -> Path:
    kinds = {"f": tarfile.REGTYPE, "h": tarfile.LNKTYPE, "l": tarfile.SYMTYPE, "d": tarfile.DIRTYPE}
    with tarfile.open(path, "w") as archive:
        for kind, name, text in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kinds[kind], 0o755
            if kind == "f":
                info.size = len(text)
            else:
                info.linkname = text
            archive.addfile(info, io.BytesIO(text.encode()) if kind == "f" else None)
    return path


@settings(max_examples=int(os.environ.get("CELLBLOCK_EXAMPLES", "150")), deadline=None,
          suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
@given(layers)
def test_the_core_has_what_a_plain_merge_has(stack: list[list[tuple[str, str, str]]]) -> None:
    if any(links_ahead(members) for members in stack):
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        paths = [write(Path(folder, f"{n}.tar"), members) for n, members in enumerate(stack)]
        try:
            model = Archive(paths)
            contents = {one.path: one.stream.read(one.size) for one in model.contents()}
        except CellblockError:
            return  # not a stack that tools make; the core may take what the model does not
        root = Path(folder, "root")
        root.mkdir()
        descriptor = os.open(root, os.O_RDONLY)
        try:
            listed = [LayerBytes(str(path), None, opener(path)) for path in paths]
            with assembling(listed, Target(descriptor, 2), lambda _: None, Path(folder)) as assembly:
                try:
                    assembly.run()
                except ImageError as error:
                    if "directory" in str(error):
                        return  # a path through what another layer made no directory: refused, not guessed
                    raise
                assembly.seal()
                assembly.write_manifest(Path(folder, "manifest"))
        finally:
            os.close(descriptor)
        found = [entry._replace(digest="") for entry in read_manifest(Path(folder, "manifest"))]
        if not model.entries or model.entries[0].path != b"":
            found = found[1:]
        assert found == model.entries
        for entry in found:
            if entry.kind in "fh":
                first = entry.path if entry.kind == "f" else entry.target
                if first not in contents:
                    continue  # a name of a symbolic link
                assert (root / os.fsdecode(entry.path)).read_bytes() == contents[first]


def listed(paths: list[Path], folder: Path, known: list[int]) -> tuple[bytes, list[int], str]:
    """The manifest of layers, by listings in `folder` for those `known`; the descriptors; or the fault."""
    aside, written = folder / "aside", folder / "manifest"
    aside.mkdir(exist_ok=True)
    written.unlink(missing_ok=True)
    fresh = [os.open(folder, os.O_TMPFILE | os.O_RDWR) for _ in paths]
    root = os.open(aside, os.O_RDONLY)
    layers = [
        LayerBytes(str(path), None, opener(path), listing=old, list_to=new if old < 0 else -1)
        for path, old, new in zip(paths, known, fresh, strict=True)
    ]
    pick = Pick(array("Q"), wanted=True)
    try:
        with assembling(layers, Target(root, 2, pick=pick), lambda _: None, folder) as assembly:
            assembly.run()
            assembly.write_manifest(written)
    except ImageError as error:
        return b"", fresh, error.fault
    finally:
        os.close(root)
    return written.read_bytes(), fresh, ""


@settings(max_examples=int(os.environ.get("CELLBLOCK_EXAMPLES", "60")), deadline=None,
          suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
@given(layers, st.data())
def test_a_listing_says_what_its_layer_says(
    stack: list[list[tuple[str, str, str]]], data: st.DataObject
) -> None:
    """Also in another image: other layers above and below it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        paths = [write(Path(folder, f"{n}.tar"), members) for n, members in enumerate(stack)]
        opened: list[int] = []
        try:
            _, opened, fault = listed(paths, Path(folder), [-1] * len(paths))
            if fault:
                return
            chosen = data.draw(st.lists(st.sampled_from(range(len(paths))), min_size=1, max_size=3))
            others = [paths[number] for number in chosen]
            known = [
                opened[number] if os.fstat(opened[number]).st_size and data.draw(st.booleans()) else -1
                for number in chosen
            ]
            expected, fresh, real_fault = listed(others, Path(folder), [-1] * len(others))
            opened += fresh
            found, fresh, fault = listed(others, Path(folder), known)
            opened += fresh
            if fault == "absent":
                # Only what some layer hid when the listings were made: with the same layers there is nothing.
                assert chosen != list(range(len(paths)))
                return
            assert (found, fault) == (expected, real_fault)
        finally:
            for descriptor in opened:
                os.close(descriptor)
