# SPDX-License-Identifier: Apache-2.0
"""Upgrades of the real jail image: its own libc, bash and python in new versions, under running programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cellblock.build import BuildRequest, build_images
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.assemble import assemble
from cellblock.jail.rollback import rollback
from cellblock.jail.upgrade import plan_upgrade, upgrade
from cellblock.jail.verify import verify
from tests.integration.conftest import default_variant

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root"),
]

PROCESSES = 200
# Each round starts six programs; a program that the loader cannot start ends the loop with a status.
LOOP = """
while [ ! -e /tmp/stop ]; do
  /bin/bash -c 'echo x | /bin/cat >/dev/null' || exit 11
  /usr/bin/python3 -c 'import json, os, sys' || exit 12
  /bin/ls / >/dev/null || exit 13
  /bin/sh -c : || exit 14
done
"""


def packages(root: Path) -> list[str]:
    """The C library, bash, and python with its modules, by the names that this release has."""
    names = run(root, "dpkg-query", "-W", "-f", "${Package}\n").split()
    python = [name for name in names if name.startswith(("python3.", "libpython3.")) and "minimal" in name]
    return ["libc6", "bash", *python]


def run(root: Path, *command: str) -> str:
    done = subprocess.run(["chroot", str(root), *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def repack(root: Path, name: str, deb: Path, suffix: str) -> None:
    """The installed package as a deb of a newer version, each ELF file of it with other bytes at its end."""
    info = root / "var/lib/dpkg/info"
    key = name if (info / f"{name}.list").exists() else f"{name}:amd64"
    tree = deb.with_suffix("")
    (tree / "DEBIAN").mkdir(parents=True)
    for line in (info / f"{key}.list").read_text().splitlines()[1:]:
        source, target = root / line[1:], tree / line[1:]
        if source.is_dir() and not source.is_symlink():
            target.mkdir(parents=True, exist_ok=True)
        elif source.is_symlink() or source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
            if not source.is_symlink() and source.read_bytes()[:4] == b"\x7fELF":
                with target.open("ab") as file:
                    file.write(suffix.encode())
    for member in ("conffiles", "preinst", "postinst", "prerm", "postrm", "triggers", "shlibs"):
        if (info / f"{key}.{member}").exists():
            shutil.copy2(info / f"{key}.{member}", tree / "DEBIAN" / member)
    control = []
    version = run(root, "dpkg-query", "-W", "-f", "${Version}", name)
    skip = False
    for line in run(root, "dpkg-query", "-s", name).splitlines():
        skip = line.startswith("Conffiles:") or (skip and line.startswith(" "))
        if not skip and not line.startswith("Status:"):
            line = line.replace(f"(= {version})", f"(= {version}{suffix})")
            control.append(f"{line}{suffix}\n" if line.startswith("Version:") else f"{line}\n")
    (tree / "DEBIAN/control").write_text("".join(control))
    subprocess.run(["dpkg-deb", "-Znone", "--build", str(tree), str(deb)], check=True, capture_output=True)
    shutil.rmtree(tree)


@dataclass(frozen=True)
class Images:
    """Root directories: the jail's image, and one with newer packages."""

    old: Path
    new: Path

    @property
    def suffix(self) -> str:
        return "+new1"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    built = build_images(BuildRequest(("jail",), default_variant(), load=True), Events())
    reference = built.images["jail"].reference
    folder = Path(tempfile.mkdtemp(prefix="cellblock-test-", dir="/var/tmp"))
    try:
        assemble(reference, folder / "image", Events())
        found = Images(folder / "old", folder / "new")
        (folder / "image/root").rename(found.old)
        subprocess.run(["cp", "-a", str(found.old), str(found.new)], check=True)
        names = packages(found.old)
        for name in names:
            repack(found.old, name, found.new / f"tmp/{name}.deb", found.suffix)
        run(found.new, "dpkg", "-i", *(f"/tmp/{name}.deb" for name in names))
        for deb in (found.new / "tmp").glob("*.deb"):
            deb.unlink()
        yield found
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def volume(images: Images) -> Iterator[Path]:
    path = images.old.parent / "volume"
    assemble(str(images.old), path, Events())
    yield path
    shutil.rmtree(path)


def check_packages(root: Path) -> None:
    assert run(root, "dpkg", "--audit") == ""
    run(root, "apt-get", "check")


def install_own(root: Path) -> None:
    """A package of the users', installed by apt in the jail."""
    tree = root / "tmp/mine"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "opt/mine").mkdir(parents=True)
    (tree / "opt/mine/f").write_text("mine")
    (tree / "DEBIAN/control").write_text(
        "Package: mine\nVersion: 1\nArchitecture: all\nMaintainer: n <n@test>\n"
        "Depends: bash\nDescription: x\n"
    )
    run(root, "dpkg-deb", "-Znone", "--build", "/tmp/mine", "/tmp/mine.deb")
    run(root, "apt-get", "-y", "install", "/tmp/mine.deb")
    shutil.rmtree(tree)
    (root / "tmp/mine.deb").unlink()


def test_programs_start_at_every_moment_of_an_upgrade_and_rollback(images: Images, volume: Path) -> None:
    root = volume / "root"
    versions = ("dpkg-query", "-W", "-f", "${Version}", "libc6")
    before = run(root, *versions)
    # Devices are the node's: /dev/null is all that the loop needs.
    (root / "dev/null").unlink(missing_ok=True)
    os.mknod(root / "dev/null", 0o020666, os.makedev(1, 3))
    (root / "dev/null").chmod(0o666)
    (root / "tmp/loop").write_text(LOOP)
    # They would leave two processors no time for the upgrade, and a test of minutes shows no more.
    command = ["nice", "-n", "19", "chroot", str(root), "/bin/sh", "/tmp/loop"]
    running = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    try:
        time.sleep(2)
        assert upgrade(str(images.new), volume, Events()).changed
        assert run(root, *versions) == before + images.suffix
        assert rollback(volume, Events()).changed
        assert run(root, *versions) == before
    finally:
        (root / "tmp/stop").touch()
        ends = [(process.communicate(timeout=120)[1], process.returncode) for process in running]
    failed = [end for end in ends if end[1] != 0]
    assert not failed, failed[:3]
    check_packages(root)


def test_users_work_survives_and_apt_goes_on(images: Images, volume: Path) -> None:
    root = volume / "root"
    install_own(root)
    run(root, "useradd", "--create-home", "ada")
    run(root, "usermod", "-aG", "video", "ada")
    (root / "home/ada/work").write_text("precious")
    (root / "etc/bash.bashrc").write_text("# ours\n")
    passwd = (root / "etc/passwd").read_text()
    plan = plan_upgrade(str(images.new), volume)
    assert {one.key.partition(":")[0] for one in plan.packages} == set(packages(root))
    assert plan.glibc is None
    upgrade(str(images.new), volume, Events())
    check_packages(root)
    assert run(root, "dpkg-query", "-W", "-f", "${Version}", "mine") == "1"
    assert (root / "home/ada/work").read_text() == "precious"
    assert (root / "etc/bash.bashrc").read_text() == "# ours\n"
    assert (root / "etc/passwd").read_text() == passwd
    assert "ada" in run(root, "id", "-nG", "ada").split()
    assert "video" in run(root, "id", "-nG", "ada").split()
    assert verify(volume, Events(), content=True).is_clean
    run(root, "apt-get", "-y", "purge", "mine")
    install_own(root)
    check_packages(root)


def test_another_c_library_needs_a_volume_without_jobs(images: Images, volume: Path) -> None:
    newer = images.old.parent / "newer"
    subprocess.run(["cp", "-a", str(images.new), str(newer)], check=True)
    status = newer / "var/lib/dpkg/status"
    version = run(newer, "dpkg-query", "-W", "-f", "${Version}", "libc6")
    status.write_text(status.read_text().replace(f"Version: {version}", f"Version: 9.{version}"))
    try:
        with pytest.raises(
            CellblockError, match=r"C library from 2\.\d+ to 9\.2\.\d+, .* nothing was changed"
        ):
            upgrade(str(newer), volume, Events())
        assert "libc6" not in {one.key for one in plan_upgrade(str(images.old), volume).packages}
        assert upgrade(str(newer), volume, Events(), drained=True).changed
        run(volume / "root", "/bin/bash", "-c", ":")
    finally:
        shutil.rmtree(newer)
