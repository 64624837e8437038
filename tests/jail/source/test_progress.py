# SPDX-License-Identifier: Apache-2.0
"""How far the image core is, told while it reads: within a file that is most of an image, too."""

from __future__ import annotations

import io
import os
import tarfile
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from cellblock.jail.source.image_core import LayerBytes, Target, assembling

SIZE = 6 << 20
PIECES = 300


def test_one_large_file_is_told_of_while_it_comes(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("a tree with owners is root's to write")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        about = tarfile.TarInfo("large")
        about.size = SIZE
        tar.addfile(about, io.BytesIO(bytes(SIZE)))
    reader, writer = os.pipe()

    def feed() -> None:
        data = packed.getvalue()
        steps = [*range(0, len(data), SIZE // PIECES), len(data)]
        with os.fdopen(writer, "wb", buffering=0) as pipe:
            for start, end in pairwise(steps):
                pipe.write(data[start:end])
                if len(between(told)) < 3:
                    time.sleep(0.02)  # it tells ten times a second at most

    def between(numbers: list[int]) -> set[int]:
        return {read for read in numbers if 0 < read < SIZE}

    told: list[int] = []
    feeder = threading.Thread(target=feed)
    feeder.start()
    root = tmp_path / "root"
    root.mkdir()
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        source = [LayerBytes("slow", None, lambda: reader)]
        with assembling(source, Target(fd, 1), told.append, tmp_path) as assembly:
            assembly.run()
    finally:
        feeder.join()
        os.close(fd)
    assert (root / "large").stat().st_size == SIZE
    assert len(between(told)) >= 3
