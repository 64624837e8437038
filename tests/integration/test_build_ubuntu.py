"""Ubuntu variants against a local file:// archive that the test makes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.build import BuildRequest, build_images
from cellblock.engine.recipe import StepFailed
from cellblock.events import Events
from cellblock.variants import host_release

from .archive import make_archive

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root"),
    pytest.mark.skipif(
        host_release().get("ID") != "debian",
        reason="the local archive is filled from this machine's own Debian mirror, and it has none",
    ),
]
PACKAGES = ("apt", "passwd", "tini", "munge", "slurm-client", "systemd-standalone-sysusers")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("archive")
    # apt's sandbox user and mmdebstrap's children must reach it.
    for parent in (folder, *folder.parents):
        if parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    yield make_archive(folder, suite="noble", components=("main", "universe"), packages=PACKAGES)
    for image in ("base", "slurm"):
        subprocess.run(
            ["buildah", "rmi", "--force", f"localhost/cellblock/{image}:ubuntu24.04"],
            check=False,
            capture_output=True,
        )


@pytest.fixture
def definitions(tmp_path: Path) -> Path:
    """The images whose packages the archive has: a build resolves all that are declared."""
    folder = tmp_path / "images"
    folder.mkdir()
    shutil.copy(paths.PROJECT / "images" / "variants.yaml", folder)
    for image in ("base", "slurm"):
        shutil.copytree(paths.PROJECT / "images" / image, folder / image)
    return folder


def test_an_ubuntu_base_is_bootstrapped_from_a_local_archive(archive: str, definitions: Path) -> None:
    request = BuildRequest(("base",), "ubuntu24.04", (archive,), definitions=definitions, bring=True)
    result = build_images(request, Events())
    reference = result.images["base"].reference
    container = subprocess.run(
        ["buildah", "from", "--pull-never", reference], check=True, capture_output=True, text=True
    ).stdout.strip()
    try:
        mounted = subprocess.run(
            ["buildah", "mount", container], check=True, capture_output=True, text=True
        ).stdout.strip()
        assert "slurm:x:64030:64030" in Path(mounted, "etc/passwd").read_text()
        assert "noble main universe" in Path(mounted, "etc/apt/sources.list").read_text()
        assert not list(Path(mounted, "var/lib/apt/lists").glob("*Packages*"))
    finally:
        subprocess.run(["buildah", "rm", container], check=True, capture_output=True)


def test_an_archive_with_another_slurm_than_declared_is_refused(archive: str, definitions: Path) -> None:
    # The archive holds Debian 13's Slurm 24.11, the variant declares 23.11: plugins would not load.
    with pytest.raises(StepFailed, match=r"23\.11.*24\.11|24\.11.*23\.11") as raised:
        build_images(BuildRequest(("slurm",), "ubuntu24.04", (archive,), definitions=definitions), Events())
    assert "image slurm" in str(raised.value)
