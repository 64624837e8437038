# SPDX-License-Identifier: Apache-2.0
"""A real Debian: packages are installed in it by somebody who is root nowhere else."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.enroot.conftest import SOURCES, Enroot, small_tree
from tests.enroot.registry.images import Pusher, image_of
from tests.integration.registry import running_registry

PROJECT = SOURCES.parent

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
    options = ["--quiet", "--variant=apt", "--dpkgopt=force-unsafe-io", "--include=openssh-server"]
    command = ["mmdebstrap", *options, "bookworm", str(folder / "root")]
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


# sshd, as its user, on a port of the container's own network, with a key; PAM is asked whether the user may.
SSHD = """set -eu
cd; mkdir -p .ssh; rm -f .ssh/id .ssh/host
for key in id host; do ssh-keygen -q -t ed25519 -N "" -f .ssh/$key; done
cp .ssh/id.pub .ssh/authorized_keys
/usr/sbin/sshd -p 2222 -h ~/.ssh/host -o UsePAM=yes -o StrictModes=no -o PidFile=none -E ~/.ssh/log
quiet="-o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    ssh -p 2222 -i .ssh/id $quiet 127.0.0.1 'echo in as $(id -un)' && exit
    sleep 1
done
cat .ssh/log; exit 1
"""


def test_sshd_in_a_container_lets_its_user_in(enroot: Enroot, debian: Path) -> None:
    shutil.copy(debian, enroot.home)
    (enroot.home / "debian.sqsh").chmod(0o644)
    enroot.out("create", "debian.sqsh")
    for name in ("debian", "debian.sqsh"):
        done = enroot("start", "--rw", "--net", name, "bash", "-c", SSHD, env={"ENROOT_MOUNT_HOME": "yes"})
        assert done.stdout.strip() == f"in as {enroot.home.owner()}", done.stdout + done.stderr


SUITES = os.environ.get("CELLBLOCK_SUITES", "").split()
NONE = pytest.param(
    "",
    marks=pytest.mark.skip(
        reason="no release of Debian is named: CELLBLOCK_SUITES='bookworm trixie forky' makes each of these,"
        " compiles in it, imports and starts there; minutes for each"
    ),
)
PACKAGES = (
    "gcc,make,libc6-dev,libyaml-dev,squashfs-tools,squashfuse,fuse-overlayfs,python3-pytest,passwd,mount,util-linux,"
    "libcurl4-openssl-dev,libisal-dev,libjansson-dev,liblz4-dev,libssl-dev,libzstd-dev,zlib1g-dev"
)

# Compiles both programs as docs/enroot.md says; then a user imports, makes a root, and starts both.
IMPORT = """\
set -eu
make -s -C /src/enroot install OUT=/usr/local/bin
make -s -C /src/enroot/importing install OUT=/usr/lib/enroot
make -s -C /src/enroot/importing check
useradd --create-home --shell /bin/bash somebody
chmod 0666 /dev/fuse
exec setpriv --reuid=somebody --regid=somebody --init-groups env -i HOME=/home/somebody PATH="$PATH" \
    XDG_RUNTIME_DIR=/home/somebody/run bash -euc '
    cd; mkdir -m 700 run
    enroot import "docker://$1/team/small"
    enroot create team+small+latest.sqsh
    enroot start team+small+latest.sqsh sh -c "echo \\$0 \\$IMAGE"
    enroot start --root team+small+latest sh -c "id -u"
    enroot load -n loaded "docker://$1/team/small"
    enroot start loaded env | grep ^IMAGE=
    ENROOT_SQUASH_OPTIONS="-comp zstd -Xcompression-level 3" enroot import -o z.sqsh "docker://$1/team/small"
    enroot start z.sqsh true
    enroot list' import "$REGISTRY"
"""


@pytest.fixture(scope="module", params=SUITES or [NONE])
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a release of Debian, with the sources of enroot in /src."""
    if os.geteuid() or not shutil.which("podman") or not shutil.which("mmdebstrap"):
        pytest.skip("needs root, podman and mmdebstrap")
    root = tmp_path_factory.mktemp(request.param) / "root"
    # A release that is being made has indexes that expire.
    options = ["--variant=apt", f"--include={PACKAGES}", '--aptopt=Acquire::Check-Valid-Until "false"']
    subprocess.run(["mmdebstrap", "--quiet", *options, request.param, root], check=True)
    for name in ("tests/enroot", "tests/spank_jail", "enroot", "spank_jail", "native"):
        unwanted = shutil.ignore_patterns("build", "__pycache__")
        shutil.copytree(PROJECT / name, root / "src" / name, ignore=unwanted)
    modules = ("cellblock/__init__.py", "cellblock/paths.py", "tests/c_compiling.py")
    (root / "src/cellblock").mkdir()
    for name in ("pyproject.toml", "tests/__init__.py", "tests/conftest.py", *modules):
        shutil.copy(PROJECT / name, root / "src" / name)
    (root / "var/tmp").chmod(0o1777)
    return root


def run_in(root: Path, folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # Its limits are ours: this machine may not raise them.
    limits = ["--ulimit=nofile=1024:4096", "--ulimit=nproc=1000:1000"]
    # A real file system below /var/tmp and /home: the container's own is an overlay, whose roots differ.
    volumes = []
    for name in ("var/tmp", "home"):
        place = folder / name
        place.mkdir(parents=True)
        place.chmod(0o1777)
        volumes += ["-v", f"{place}:/{name}"]
    variables = [f"--env={key}={value}" for key, value in environment.items()]
    # The host's network: its loopback is where the registry is.
    options = ["--rm", "--privileged", "--network=host", *limits, *volumes, *variables, "--workdir=/src"]
    return subprocess.run(
        ["podman", "run", *options, "--rootfs", str(root), *command], capture_output=True, text=True
    )


def test_it_compiles_and_runs_on(release: Path, tmp_path: Path) -> None:
    """What other Debians could change: compiler, C library, squashfs-tools, libfuse. Takes minutes."""
    parts = ("start", "roots", "mounts", "hooks", "settings", "killed")
    files = [f"tests/enroot/test_{part}.py" for part in parts]
    done = run_in(release, tmp_path, "python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", *files)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


def test_it_imports_on(release: Path, tmp_path: Path) -> None:
    """And curl, jansson, OpenSSL, the compressors: from a registry to a container, by who is not root."""
    small_tree(tmp_path / "small")
    tar = subprocess.run(["tar", "-C", tmp_path / "small", "-c", "."], capture_output=True, check=True).stdout
    config = {"Env": ["IMAGE=from the registry"], "Cmd": ["sh"]}
    with running_registry(tmp_path / "registry") as registry:
        pusher = Pusher(f"http://{registry.host}", "team/small")
        pusher.image(image_of([tar], config=config), "latest")
        done = run_in(release, tmp_path, "bash", "-c", IMPORT, REGISTRY=registry.host)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    told = ["sh from the registry", "0", "IMAGE=from the registry", "loaded", "team+small+latest"]
    assert done.stdout.splitlines()[-5:] == told, done.stdout + done.stderr
