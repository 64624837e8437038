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

_RUNROOT_MAX = 50
"""podman 4.3 refuses a longer --runroot, which conmon gives it when a container ends: `podman run`, which has
its runroot from storage.conf, waits 20 s for that."""


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
    """Variables by which buildah and podman keep their images in `folder`, and buildah needs no runtime.

    Raises ValueError for a folder whose name is too long for podman: each `podman run` would take 20 s more.
    """
    if len(f"{folder}/run") > _RUNROOT_MAX:
        raise ValueError(f"{folder} is too long: podman's runroot has at most {_RUNROOT_MAX} characters")
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
