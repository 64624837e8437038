# SPDX-License-Identifier: Apache-2.0
"""What an Ubuntu variant's toolchain compiles: with the container plugin, which its Slurm loads.

From a local archive of Debian's packages, as in test_build_ubuntu.py. It compiles for a minute, and so runs
where CELLBLOCK_UBUNTU_PLUGINS is set.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cellblock import paths
from cellblock.build import BuildRequest, build_images
from cellblock.events import Events
from tests.integration.archive import make_archive
from tests.spank_jail.hardening import weaknesses

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root"),
    pytest.mark.skipif(
        not os.environ.get("CELLBLOCK_UBUNTU_PLUGINS"),
        reason="compiles for a minute; CELLBLOCK_UBUNTU_PLUGINS=1 does it",
    ),
]
VARIANT = "ubuntu24.04"
IMAGES = ("base", "slurm", "toolchain", "plugins")
# Without what imports images, which is compiled by the same compiler and knows nothing of Slurm.
TOOLCHAIN = ("gcc", "libc6-dev", "make", "libslurm-dev", "libpam0g-dev", "libyaml-dev")
RUNTIME = ("apt", "passwd", "tini", "munge", "slurm-client", "systemd-standalone-sysusers")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("archive")
    # apt's sandbox user and mmdebstrap's children must reach it.
    for parent in (folder, *folder.parents):
        if parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    yield make_archive(
        folder, suite="noble", components=("main", "universe"), packages=(*RUNTIME, *TOOLCHAIN)
    )
    for image in IMAGES:
        command = ["buildah", "rmi", "--force", f"localhost/cellblock/{image}:{VARIANT}"]
        subprocess.run(command, check=False, capture_output=True)


@pytest.fixture(scope="module")
def images(archive: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """References of the images; the project's own definitions, of which two have less to do."""
    definitions = tmp_path_factory.mktemp("images")
    declared = (paths.PROJECT / "images" / "variants.yaml").read_text()
    changed = declared.replace('codename: noble, slurm: "23.11"', 'codename: noble, slurm: "24.11"')
    assert changed != declared
    (definitions / "variants.yaml").write_text(changed)
    for image in IMAGES:
        shutil.copytree(paths.PROJECT / "images" / image, definitions / image)
    _change(definitions / "toolchain" / "image.yaml", packages=list(TOOLCHAIN))
    plugins = yaml.safe_load((definitions / "plugins" / "image.yaml").read_text())
    runs = [line for line in plugins["build"]["run"] if "importing" not in line]
    assert len(runs) == len(plugins["build"]["run"]) - 1
    _change(definitions / "plugins" / "image.yaml", build={**plugins["build"], "run": runs})
    request = BuildRequest(IMAGES, VARIANT, (archive,), definitions=definitions, load=True)
    built = build_images(request, Events())
    return {name: image.reference for name, image in built.images.items()}


def _change(path: Path, **changes: object) -> None:
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}))


def buildah(*arguments: str) -> str:
    return subprocess.run(["buildah", *arguments], check=True, capture_output=True, text=True).stdout


def test_its_slurm_loads_the_container_plugin(images: dict[str, str], tmp_path: Path) -> None:
    """srun of the variant shows the plugin's options; a plugin of another release it would refuse"""
    containers = [buildah("from", "--pull-never", images[name]).strip() for name in ("plugins", "slurm")]
    try:
        plugins, slurm = (Path(buildah("mount", container).strip()) for container in containers)
        assert {"pyxis.so", "enroot", "enroot-hold", "spank_jail.so"} <= {
            path.name for path in (plugins / "out").iterdir()
        }
        assert weaknesses(plugins / "out" / "pyxis.so") == []
        release = subprocess.run([plugins / "out/plugin-release", plugins / "out/pyxis.so", "slurm 24.11.5"])
        assert release.returncode == 0
        shutil.copy(plugins / "out" / "pyxis.so", slurm / "tmp")
        (slurm / "etc/slurm").mkdir(exist_ok=True)
        (slurm / "etc/slurm/slurm.conf").write_text("ClusterName=x\nSlurmctldHost=localhost\n")
        (slurm / "etc/slurm/plugstack.conf").write_text("required /tmp/pyxis.so\n")
        assert "--container-image=" in buildah("run", containers[1], "--", "srun", "--help")
    finally:
        for container in containers:
            buildah("rm", container)
