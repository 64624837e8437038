# SPDX-License-Identifier: Apache-2.0
"""Makes temporary folders and environment variables for one benchmark, and removes them afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch(parent: Path | None = None) -> Iterator[Path]:
    """A folder below `parent` (default: /var/tmp, which is a disk), removed with all mounts below it."""
    folder = Path(tempfile.mkdtemp(prefix="cellblock-bench-", dir=parent or "/var/tmp"))
    folder.chmod(0o755)  # apt's sandbox user reads archives below it
    try:
        yield folder
    finally:
        unmount_below(folder)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Have `variables` set in this process, and so for what it starts, while the context lasts."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def storage(folder: Path) -> dict[str, str]:
    """Variables by which buildah keeps its images in `folder`, and needs no runtime."""
    conf = folder / "storage.conf"
    folder.mkdir(parents=True, exist_ok=True)
    conf.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n',
        encoding="utf-8",
    )
    return {"CONTAINERS_STORAGE_CONF": str(conf), "BUILDAH_ISOLATION": "chroot"}


def unmount_below(folder: Path) -> None:
    """Unmount what daemons and engines left mounted below `folder`."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    for target in sorted((line.split()[1] for line in lines), reverse=True):
        if target.startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", target], check=False, capture_output=True)
