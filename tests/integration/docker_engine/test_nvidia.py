"""NVIDIA's repository through a rendered Containerfile: pinned, trusted by its key alone, and in no image."""

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
from tests.integration import trees
from tests.integration.docker_engine.builds import Builds, comparable

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root"),
    pytest.mark.skipif(
        shutil.which("dockerd") is None, reason="dockerd is not installed (apt-get install docker.io)"
    ),
]
VARIANT = "mine"
NAME = "dockertest-cuda"
DEFINITION = """summary: CUDA's libraries
packages: [passwd, "{{ cuda.runtime | join(' ') if cuda }}"]
per_machine: [/etc/machine-id, /var/lib/dbus/machine-id]
run: ["rm -f /etc/machine-id /var/lib/dbus/machine-id", "ls /usr/local/cuda-test > /found"]
"""


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
    (definitions / NAME).mkdir(parents=True)
    (definitions / NAME / "image.yaml").write_text(DEFINITION)
    known = (paths.PROJECT / "images" / "variants.yaml").read_text()
    cuda = (
        f"{{from: nvidia, repository: 'file://{folder}', key: '{key.public}', "
        f"fingerprint: {key.fingerprint}, version: '12.8'}}"
    )
    mine = f"  {VARIANT}: {{distribution: debian13, cuda: {cuda}}}\n"
    (definitions / "variants.yaml").write_text(known + mine)
    return BuildRequest((), VARIANT, (builds.archive,), definitions=definitions)


def test_both_engines_install_the_pinned_version_and_name_the_repository_nowhere(
    builds: Builds, request_: BuildRequest
) -> None:
    by_docker = build_images(replace(request_, engine="docker"), Events())
    by_buildah = build_images(replace(request_, bring=True), Events())
    ours = builds.docker_tree(by_docker.images[NAME].reference)
    with trees.buildah_root(by_buildah.images[NAME].reference) as root:
        theirs = comparable(trees.entries(root))
        assert (root / "found").read_text() == "cuda-libraries-12-8\nlibnccl2\n"
        assert (root / "usr/local/cuda-test/libnccl2").read_text() == "2.26.2-1+cuda12.8"
        assert "nvidia" not in (root / "etc/apt/sources.list").read_text()
    assert trees.differences(ours, theirs) == []
    assert not [path for path in ours if path.startswith(("etc/apt/preferences.d/", "etc/apt/keyrings/"))]


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


def test_a_rendered_context_says_where_its_debs_come_from(
    builds: Builds, request_: BuildRequest, tmp_path: Path
) -> None:
    with rendered(RenderRequest((NAME,), VARIANT, (builds.archive,), request_.definitions)) as file:
        file.write(tmp_path / "context", Events())
    text = (tmp_path / "context" / "Containerfile").read_text()
    assert "cuda-libraries-12-8" in text
    assert "Pin: version *+cuda12.8" in text
