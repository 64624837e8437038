# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of `build.py packages`: packages made once, and a machine with Debian's Slurm alone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.attest.signing import load_signer
from cellblock.build import BuildRequest, build_images, copy_images
from cellblock.events import Events
from cellblock.release.packages import PackagesRequest, make_packages

VARIANT = "debian13"
RELEASES = {"debian12": "22.05", "debian13": "24.11", "debian14": "26.05"}
"""Variant -> its Slurm: the oldest, the one of the newest stable Debian, and the newest."""
LIMITS = ("--ulimit=nofile=1024:4096", "--ulimit=nproc=4096:4096")
"""Within those of this machine: podman's own are above what it may set."""
SITE = Path(__file__).parent / "site"


class Made:
    """A folder of packages, and the key that signed them."""

    def __init__(self, folder: Path, key: Path) -> None:
        self.folder, self.key = folder, key

    def deb(self, name: str) -> Path:
        """The one Debian package whose name begins so."""
        (found,) = self.folder.glob(f"debian/{name}*.deb")
        return found


@pytest.fixture(scope="session")
def variant(request: pytest.FixtureRequest) -> str:
    """The variant of the packages and of the machine; tests for several of them name it."""
    return str(getattr(request, "param", VARIANT))


@pytest.fixture(scope="session")
def made(variant: str, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The packages of the variant, signed."""
    if not os.environ.get("CELLBLOCK_PACKAGES"):
        pytest.skip("minutes, and two cores of them: `build.py test --thorough` sets CELLBLOCK_PACKAGES")
    folder = tmp_path_factory.mktemp("packages")
    key = folder / "key.pem"
    subprocess.run(
        ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key)], check=True
    )
    output = folder / "made"
    request = PackagesRequest(BuildRequest(variant=variant), output, signer=load_signer(str(key)))
    make_packages(request, Events())
    return Made(output, key)


class Machine:
    """A container with a cluster of one machine."""

    def __init__(self, name: str, variant: str, layout: Path, volume: Path) -> None:
        self.name, self.variant = name, variant
        self.layout, self.volume = layout, volume
        """The jail's image, and what is its /mnt/jail, as this machine sees them."""

    @property
    def release(self) -> str:
        """Of its Slurm."""
        return RELEASES[self.variant]

    def run(self, line: str, user: str = "root", timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """A shell line on the machine; what it says on both channels together."""
        argv = ["podman", "exec", "--user", user, "--workdir", "/", self.name, "bash", "-c", line]
        return subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False
        )

    def says(self, line: str, user: str = "root", timeout: float = 120) -> str:
        """The same for one that must succeed."""
        done = self.run(line, user, timeout)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{self.logs()}"
        return done.stdout

    def logs(self) -> str:
        """The ends of Slurm's logs."""
        return self.run("tail -n 30 /var/log/slurmd.log /var/log/slurmctld.log").stdout

    def restart_slurmd(self) -> None:
        """What `systemctl restart slurmd` does; there is no systemd here."""
        self.says("pkill -x slurmd; while pgrep -x slurmd >/dev/null; do sleep 0.1; done; slurmd", timeout=60)
        self.wait()

    def in_its_network(self, *command: str) -> None:
        """A command of this machine's, by root, in the network of the container."""
        shown = subprocess.run(
            ["podman", "inspect", "--format", "{{.State.Pid}}", self.name],
            capture_output=True,
            text=True,
            check=True,
        )
        subprocess.run(["nsenter", f"--net=/proc/{shown.stdout.strip()}/ns/net", *command], check=True)

    def wait(self) -> None:
        """Until the node takes jobs."""
        self.says(
            "for i in $(seq 300); do sinfo -h -o %t | grep -qE '^(idle|mix)' && exit; sleep 0.2; done; exit 1"
        )


@pytest.fixture(scope="module")
def machine(made: Made, variant: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A plain machine; /srv/packages is there, and /srv/jail-image, a jail's image."""
    site = (SITE,)
    result = build_images(
        BuildRequest(images=("plain-slurm", "jail"), variant=variant, load=("plain-slurm",), sites=site),
        Events(),
    )
    layout = tmp_path_factory.mktemp("jail") / "image"
    copy_images(result, layout, ["jail"])
    name = f"cellblock-plain-slurm-{os.getpid()}"
    subprocess.run(["podman", "rm", "-f", "-t", "0", name], check=True, capture_output=True)
    # With a network: Slurm looks up addresses of a kind that some interface besides the loopback has.
    options = ["--hostname", "plain", "--privileged", *LIMITS]
    volume = tmp_path_factory.mktemp("volume")
    volume.chmod(0o755)
    volumes = [f"{made.folder}:/srv/packages:ro", f"{layout}:/srv/jail-image:ro", f"{volume}:/mnt/jail"]
    shown = [f"--volume={each}" for each in volumes]
    argv = ["podman", "run", "-d", "--init", "--name", name, *options, "--tmpfs=/run", *shown]
    subprocess.run([*argv, result.images["plain-slurm"].reference], check=True, capture_output=True)
    plain = Machine(name, variant, layout, volume)
    try:
        plain.wait()
        yield plain
    finally:
        subprocess.run(["podman", "rm", "-f", "-v", "-t", "0", name], check=False, capture_output=True)
