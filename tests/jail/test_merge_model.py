"""Layers of a few names in any combination: the image core's merge, from the top down, against a plain one.

The plain one (`jail.archive`) lays each layer over those below.
"""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cellblock.errors import CellblockError
from cellblock.jail import manifest
from cellblock.jail.archive import Archive
from cellblock.jail.feeding import opener
from cellblock.jail.image_core import ImageError, LayerBytes, Target, assembling

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
        found = [entry._replace(digest="") for entry in manifest.read(Path(folder, "manifest"))]
        if not model.entries or model.entries[0].path != b"":
            found = found[1:]
        assert found == model.entries
        for entry in found:
            if entry.kind in "fh":
                first = entry.path if entry.kind == "f" else entry.target
                if first not in contents:
                    continue  # a name of a symbolic link
                assert (root / os.fsdecode(entry.path)).read_bytes() == contents[first]
