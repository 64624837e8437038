# SPDX-License-Identifier: Apache-2.0
"""jail-init cannot be built for each variant; a cluster of such a one has that of another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cellblock.paths import PROJECT

_FILE = """\
name: pods
variant: {variant}
node_sets: [{{name: cpu, count: 2, resources: {{cpu: 1, memory: 512Mi}}}}]
kubernetes:
  registry: registry.example/cellblock
  jail: {{size: 1Gi, storage_class: shared}}
  {more}
"""


def _render(folder: Path, variant: str, more: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "cluster.yaml").write_text(_FILE.format(variant=variant, more=more))
    command = [sys.executable, "-m", "cellblock.cli", "render", "kubernetes"]
    options = ["--cluster", str(folder / "cluster.yaml"), "--output", str(folder / "out")]
    return subprocess.run([*command, *options], cwd=PROJECT, capture_output=True, text=True, check=False)


def test_one_that_nobody_can_build_is_refused(tmp_path: Path) -> None:
    done = _render(tmp_path, "debian12")
    assert done.returncode == 2
    assert "image jail-init cannot be built for debian12: its python3-urllib3" in done.stderr
    assert "`images: {jail-init: registry.example/cellblock/jail-init:debian13}`" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("variant", "more", "image"),
    [
        ("debian12", "images: {jail-init: registry.example/cellblock/jail-init:debian13}", ":debian13"),
        ("debian12", "tag: ours", ":ours"),
        ("debian13", "", ":debian13"),
    ],
)
def test_what_can_be_pulled_is_rendered(variant: str, more: str, image: str, tmp_path: Path) -> None:
    done = _render(tmp_path, variant, more)
    assert done.returncode == 0, done.stderr
    rendered = "".join(path.read_text() for path in (tmp_path / "out").glob("*.yaml"))
    assert f"registry.example/cellblock/jail-init{image}" in rendered
