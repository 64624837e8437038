"""A real Debian: packages are installed in it by somebody who is root nowhere else."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.enroot.conftest import Enroot

pytestmark = pytest.mark.integration

POSTINST = """#!/bin/sh
set -e
chown daemon:daemon /usr/share/small/file
useradd --system small-user
"""


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A squashfs file of it."""
    if os.geteuid() or not shutil.which("mmdebstrap"):
        pytest.skip("needs root and mmdebstrap")
    folder = tmp_path_factory.mktemp("debian")
    # mmdebstrap writes the image itself, by tar2sqfs where that is installed: a tree works everywhere.
    command = ["mmdebstrap", "--quiet", "--variant=apt", "bookworm", str(folder / "root")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no archive to bootstrap from: {done.stderr[-300:]}")
    options = ["-all-root", "-quiet", "-no-progress", "-comp", "zstd", "-Xcompression-level", "1"]
    squash = ["mksquashfs", folder / "root", folder / "debian.sqsh", *options, "-wildcards", "-e", "dev/*"]
    subprocess.run(squash, check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(folder / "root")
    return folder / "debian.sqsh"


def package(folder: Path) -> Path:
    """A package whose script changes an owner and makes a user."""
    (folder / "small/DEBIAN").mkdir(parents=True)
    (folder / "small/usr/share/small").mkdir(parents=True)
    (folder / "small/usr/share/small/file").write_text("x\n")
    fields = (
        "Package: small",
        "Version: 1",
        "Architecture: all",
        "Maintainer: x <x@example.org>",
        "Description: x",
    )
    (folder / "small/DEBIAN/control").write_text("\n".join(fields) + "\n")
    (folder / "small/DEBIAN/postinst").write_text(POSTINST)
    (folder / "small/DEBIAN/postinst").chmod(0o755)
    command = ["dpkg-deb", "--root-owner-group", "-b", folder / "small", folder / "small.deb"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / "small.deb"


def test_apt_installs_a_package(enroot: Enroot, debian: Path, tmp_path: Path) -> None:
    for path in (debian, package(tmp_path)):
        shutil.copy(path, enroot.home)
        (enroot.home / path.name).chmod(0o644)
    enroot.out("create", "debian.sqsh")
    mount = f"{enroot.home}:/mnt/home"
    script = "apt-get install -y /mnt/home/small.deb >&2; dpkg-query -W -f '${db:Status-Abbrev}' small"
    script += "; grep ^small /etc/passwd"
    told = enroot.out("start", "--root", "--rw", "-m", mount, "debian", "sh", "-c", script)
    assert told.split()[0] == "ii"
    assert "small-user:" in told
    assert (enroot.data / "debian/usr/share/small/file").exists()
    # And in an image file, where it is gone afterwards.
    told = enroot.out("start", "--root", "--rw", "-m", mount, "debian.sqsh", "sh", "-c", script)
    assert told.split()[0] == "ii"
