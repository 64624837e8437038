# SPDX-License-Identifier: Apache-2.0
"""The Containerfile of docs/packages.md, on a plain image with slurmd in the place of another operator's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.documented import blocks_for
from tests.integration.archive import HAS_A_MIRROR
from tests.integration.packages.conftest import LIMITS, Machine, Made

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="building images and running containers needs root"),
    HAS_A_MIRROR,
]


def test_three_lines_carry_the_plugins(made: Made, machine: Machine, tmp_path: Path) -> None:
    (block,) = blocks_for("packages.md", "test_three_lines_carry_the_plugins")
    assert len(block.text.strip().splitlines()) == 3
    image = subprocess.run(
        ["podman", "inspect", "-f", "{{.ImageName}}", machine.name],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    # The machine of the test has no archive, and the image what the packages depend on.
    text = block.text.replace("SLURMD_IMAGE", image).replace("apt-get update && ", "")
    (tmp_path / "Containerfile").write_text(text)
    name = "localhost/cellblock-plain-slurm-with-jail"
    argv = [
        "podman",
        "build",
        "-q",
        "--network",
        "none",
        "-t",
        name,
        "-f",
        str(tmp_path / "Containerfile"),
        str(made.folder),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    try:
        plugins = "/usr/lib/x86_64-linux-gnu/slurm-wlm"
        ask = f'/usr/libexec/cellblock/plugin-release {plugins}/$each.so "$(slurmd -V)"'
        line = f"for each in spank_jail pyxis; do {ask}; done"
        run = ["podman", "run", "--rm", *LIMITS, "--network", "none"]
        subprocess.run([*run, name, "sh", "-ec", line], check=True)
    finally:
        subprocess.run(["podman", "rmi", "-f", name], check=False, capture_output=True)
