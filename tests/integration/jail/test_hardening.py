# SPDX-License-Identifier: Apache-2.0
"""What the images carry: the plugin, the PAM module and programs as their toolchain compiled them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.build import BuildRequest, build_images
from cellblock.events import Events
from tests.spank_jail.hardening import HOOKS, PLUGIN, SESSION, exports, unversioned, weaknesses

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root"),
]
VARIANT = os.environ.get("CELLBLOCK_TEST_VARIANT") or "debian13"


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of what the image of plugins holds."""
    image = build_images(BuildRequest(("plugins",), VARIANT, load=True), Events()).images["plugins"].reference
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


PROGRAMS = (
    *("spank_jail.so", "pyxis.so", "pam_jail.so", "job_submit_jail.so", "jail-enter", "jail-driver"),
    *("jail-accounts", "node-supervise"),
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_hardened(artifacts: Path, name: str) -> None:
    assert weaknesses(artifacts / name) == []


HOOKS_OF = {
    "spank_jail.so": ("init", "init_post_opt", "user_init", "task_init_privileged", "task_init"),
    "pyxis.so": ("init", "init_post_opt", "user_init", "task_init", "task_exit", "job_epilog", "exit"),
}


@pytest.mark.parametrize("name", HOOKS_OF)
def test_a_plugin_exports_what_slurm_looks_up_and_nothing_else(artifacts: Path, name: str) -> None:
    exported = exports(artifacts / name)
    assert exported >= PLUGIN
    assert exported - PLUGIN <= HOOKS
    assert exported >= {f"slurm_spank_{hook}" for hook in HOOKS_OF[name]}


def test_of_slurm_the_container_plugin_takes_the_public_interface_alone(artifacts: Path) -> None:
    """spank.h and slurm.h: what else slurmstepd has changes from release to release"""
    asked = unversioned(artifacts / "pyxis.so")
    assert "spank_get_item" in asked
    assert [name for name in asked if not name.startswith(("spank_", "slurm_"))] == []


def test_the_pam_module_exports_its_session_and_nothing_else(artifacts: Path) -> None:
    assert exports(artifacts / "pam_jail.so") == SESSION


def test_the_submission_plugin_exports_what_slurmctld_looks_up_and_nothing_else(artifacts: Path) -> None:
    exported = exports(artifacts / "job_submit_jail.so")
    assert exported == {
        *("plugin_name", "plugin_type", "plugin_version"),
        *("init", "job_submit", "job_modify"),
    }


def test_the_guard_of_services_exports_what_it_stands_in_for_and_nothing_else(artifacts: Path) -> None:
    sockets = {"accept", "accept4", "close", "read", "recv"}
    slurm = {"auth_g_get_uid", "hostlist_create_dims", "unpackstr_xmalloc_escaped"}
    database = {"mysql_autocommit", "mysql_close", "mysql_commit", "mysql_query", "mysql_rollback"}
    assert exports(artifacts / "service_guard.so") == sockets | slurm | database
    assert weaknesses(artifacts / "service_guard.so") == []
