"""What the images carry: the plugin, the PAM module and jail-enter as their toolchain compiled them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.build import BuildRequest, build_images
from cellblock.events import Events
from tests.spank_jail.hardening import HOOKS, PLUGIN, SESSION, exports, weaknesses

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root"),
]
VARIANT = os.environ.get("CELLBLOCK_TEST_VARIANT") or "debian13"


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of what the image of plugins holds."""
    image = build_images(BuildRequest(("plugins",), VARIANT), Events()).images["plugins"].reference
    container = buildah("from", "--pull-never", image)
    copy = tmp_path_factory.mktemp("plugins")
    try:
        shutil.copytree(Path(buildah("mount", container)) / "out", copy, dirs_exist_ok=True)
    finally:
        buildah("rm", container)
    yield copy
    shutil.rmtree(copy)


def buildah(*arguments: str) -> str:
    done = subprocess.run(["buildah", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("name", ["spank_jail.so", "pam_jail.so", "jail-enter"])
def test_it_is_hardened(artifacts: Path, name: str) -> None:
    assert weaknesses(artifacts / name) == []


def test_the_plugin_exports_what_slurm_looks_up_and_nothing_else(artifacts: Path) -> None:
    exported = exports(artifacts / "spank_jail.so")
    assert exported >= PLUGIN
    assert exported - PLUGIN <= HOOKS
    needed = ("init", "init_post_opt", "user_init", "task_init_privileged", "task_init")
    assert exported >= {f"slurm_spank_{hook}" for hook in needed}


def test_the_pam_module_exports_its_session_and_nothing_else(artifacts: Path) -> None:
    assert exports(artifacts / "pam_jail.so") == SESSION
