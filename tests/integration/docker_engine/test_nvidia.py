# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's repository through a rendered Containerfile: trusted by its key alone."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.build import BuildRequest, build_images
from cellblock.build.containerfile import RenderRequest, rendered
from cellblock.engine.recipe import StepFailed
from cellblock.errors import CellblockError
from cellblock.events import Events
from tests.cuda import signed_archive
from tests.integration.docker_engine.builds import Builds

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root"),
    pytest.mark.skipif(
        shutil.which("dockerd") is None, reason="dockerd is not installed (apt-get install docker.io)"
    ),
]
VARIANT = "mine"
NAME = "dockertest-cuda"
DEFINITIONS = {
    "dockertest-below": """summary: a root
packages: [passwd]
per_machine: [/etc/machine-id, /var/lib/dbus/machine-id]
run: ["rm -f /etc/machine-id /var/lib/dbus/machine-id"]
""",
    NAME: """summary: CUDA's libraries
from: dockertest-below
packages: ["{{ cuda.runtime | join(' ') if cuda }}"]
run: ["ls /usr/local/cuda-test > /found"]
""",
}


@pytest.fixture(scope="module")
def signed(builds: Builds) -> tuple[Path, signed_archive.SigningKey]:
    """An archive in the form of NVIDIA's, on this machine, and the key that signed it."""
    key = signed_archive.make_key(builds.folder / "key")
    folder = builds.folder / "nvidia"
    signed_archive.make_archive(folder)
    signed_archive.sign(folder, key)
    return folder, key


@pytest.fixture(scope="module")
def request_(builds: Builds, signed: tuple[Path, signed_archive.SigningKey]) -> BuildRequest:
    folder, key = signed
    definitions = builds.folder / "nvidia-images"
    for name, text in DEFINITIONS.items():
        (definitions / name).mkdir(parents=True)
        (definitions / name / "image.yaml").write_text(text)
    known = (paths.PROJECT / "images" / "variants.yaml").read_text()
    cuda = (
        f"{{from: nvidia, repository: 'file://{folder}', key: '{key.public}', "
        f"fingerprint: {key.fingerprint}, version: '12.8'}}"
    )
    mine = f"  {VARIANT}: {{distribution: debian13, cuda: {cuda}}}\n"
    (definitions / "variants.yaml").write_text(known + mine)
    return BuildRequest((), VARIANT, (builds.archive,), definitions=definitions)


def test_a_repository_that_another_key_signed_is_refused_before_anything_is_built(
    builds: Builds, request_: BuildRequest, signed: tuple[Path, signed_archive.SigningKey], tmp_path: Path
) -> None:
    other = signed_archive.make_key(builds.folder / "other-key")
    signed_archive.sign(signed[0], other)
    try:
        with pytest.raises(CellblockError, match="is not signed with the key") as raised:
            build_images(replace(request_, engine="docker"), Events())
        assert not isinstance(raised.value, StepFailed)
        with (
            pytest.raises(CellblockError, match="is not signed with the key"),
            rendered(RenderRequest((NAME,), VARIANT, (builds.archive,), request_.definitions)) as file,
        ):
            file.write(tmp_path / "context", Events())
    finally:
        signed_archive.sign(*signed)
