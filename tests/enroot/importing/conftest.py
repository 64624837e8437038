# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of imports: enroot-image compiled, and run with folders of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import c_compiling

SOURCES = Path(__file__).parents[3] / "enroot/importing"


@dataclass(frozen=True)
class Importer:
    """Runs enroot-image as `enroot import` and `enroot load` do."""

    program: Path
    folder: Path

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.folder),
            "ENROOT_SYSCONF_PATH": str(self.folder / "etc"),
            "ENROOT_TEMP_PATH": str(self.folder / "tmp"),
            "ENROOT_DATA_PATH": str(self.folder / "data"),
            "ENROOT_CACHE_PATH": str(self.folder / "cache"),
            **(extra or {}),
        }

    def __call__(
        self, *words: str | Path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.program), *map(str, words)],
            capture_output=True,
            text=True,
            env=self.environment(env),
            cwd=self.folder,
            timeout=120,
        )

    def image(self, uri: str, name: str = "image.sqsh", *, env: Mapping[str, str] | None = None) -> Path:
        """The image of `uri`; it must succeed."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        done = self("import", "-o", path, uri, env=env)
        assert done.returncode == 0, done.stderr
        return path


def make(build: Path, *targets: str) -> subprocess.CompletedProcess[str]:
    return c_compiling.make(SOURCES, build, *targets)


@pytest.fixture
def importer(importer_build: Path, tmp_path: Path) -> Importer:
    for name in ("etc", "tmp", "data"):
        (tmp_path / name).mkdir()
    return Importer(importer_build / "enroot-image", tmp_path)


def unpack_by_umoci(layout: Path, folder: Path, tag: str = "test") -> Path:
    """The tree that umoci makes of an image."""
    if not shutil.which("umoci"):
        pytest.skip("umoci is not installed: `python3 build.py test` installs it")
    rootless = ["--rootless"] if os.geteuid() else []
    command = ["umoci", "unpack", *rootless, "--image", f"{layout}:{tag}", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "rootfs"


def unpack_by_unsquashfs(image: Path, folder: Path) -> Path:
    command = ["unsquashfs", "-quiet", "-no-progress", "-dest", str(folder), str(image)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@contextmanager
def mounted(image: Path, folder: Path, by: str) -> Iterator[Path]:
    """The image mounted by the kernel, or by squashfuse."""
    folder.mkdir()
    command = (
        ["mount", "-o", "loop,ro", str(image), str(folder)]
        if by == "kernel"
        else [by, str(image), str(folder)]
    )
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        folder.rmdir()
        pytest.skip(f"{by} cannot mount here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
