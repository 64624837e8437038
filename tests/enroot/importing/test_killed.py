# SPDX-License-Identifier: Apache-2.0
"""An import that is killed leaves nothing that looks whole, and nothing at all after the next."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

from tests.enroot.importing.conftest import Importer
from tests.enroot.importing.layouts import LayerTar, write_layout

KILLS = int(os.environ.get("CELLBLOCK_IMPORT_KILLS", "15"))


def test_killed_at_random_moments(importer: Importer, tmp_path: Path) -> None:
    source = random.Random(1)
    layers = []
    for i in range(3):
        tar = LayerTar()
        tar.file(f"random-{i}", source.randbytes(15_000_000))
        layers.append(tar.finish())
    layout = write_layout(tmp_path / "layout", layers, how="plain")
    began = time.monotonic()
    whole = importer.image(f"oci:{layout}").read_bytes()
    took = time.monotonic() - began
    output = importer.folder / "killed.sqsh"
    killed = 0
    for _ in range(KILLS):
        command = [str(importer.program), "import", "-o", str(output), f"oci:{layout}"]
        running = subprocess.Popen(
            command, env=importer.environment(), cwd=importer.folder, stderr=subprocess.DEVNULL
        )
        began = time.monotonic()
        try:
            running.wait(source.uniform(0, took))
            took = min(took, time.monotonic() - began)
        except subprocess.TimeoutExpired:
            running.kill()
        killed += running.wait() == -signal.SIGKILL
        assert not output.exists() or output.read_bytes() == whole
        output.unlink(missing_ok=True)
        assert list((importer.folder / "tmp").iterdir()) == []
    assert killed > KILLS // 4
    assert {path.name for path in importer.folder.iterdir()} <= {
        "etc", "tmp", "data", "cache", "layout", "image.sqsh"
    }  # fmt: skip


def test_load_that_was_killed(importer: Importer, tmp_path: Path) -> None:
    tar = LayerTar()
    for i in range(3000):
        tar.file(f"file-{i}", b"x" * 1000)
    layout = write_layout(tmp_path / "layout", [tar.finish()], how="plain")
    for wait in (0.02, 0.05, 0.1):
        command = [str(importer.program), "load", "-f", "-n", "killed", f"oci:{layout}"]
        running = subprocess.Popen(
            command, env=importer.environment(), cwd=importer.folder, stderr=subprocess.DEVNULL
        )
        time.sleep(wait)
        running.kill()
        running.wait()
    assert importer("load", "-f", "-n", "killed", f"oci:{layout}").returncode == 0
    assert [path.name for path in (importer.folder / "data").iterdir()] == ["killed"]
    assert len(list((importer.folder / "data/killed").iterdir())) == 3002  # and dev, etc
