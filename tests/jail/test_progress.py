"""How far the image core is, told while it reads: within a file that is most of an image, too."""

from __future__ import annotations

import io
import os
import tarfile
import threading
import time
from pathlib import Path

import pytest

from cellblock.jail.image_core import LayerBytes, Target, assembling

SIZE = 6 << 20
# The core tells ten times a second at most.
PAUSE_S = 0.15


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
        with os.fdopen(writer, "wb", buffering=0) as pipe:
            for at in range(0, len(data), SIZE // 6):
                pipe.write(data[at : at + SIZE // 6])
                time.sleep(PAUSE_S)

    feeding = threading.Thread(target=feed)
    feeding.start()
    told: list[int] = []
    root = tmp_path / "root"
    root.mkdir()
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        source = [LayerBytes("slow", None, lambda: reader)]
        with assembling(source, Target(fd, 1), told.append, tmp_path) as assembly:
            assembly.run()
    finally:
        feeding.join()
        os.close(fd)
    assert (root / "large").stat().st_size == SIZE
    assert len({read for read in told if 0 < read < SIZE}) >= 3
