# SPDX-License-Identifier: Apache-2.0
"""A site's own images, built and run: docs/site-images.md is typed, with its example repository."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from cellblock.cluster import stop
from cellblock.events import Events
from tests.documented import lines_for, type_line
from tests.integration.conftest import default_variant
from tests.integration.state_folder import state_folder
from tests.ports import free_port

pytestmark = pytest.mark.integration

_NAME = f"site{os.getpid()}"


@pytest.fixture
def own_cluster() -> Iterator[str]:
    """Options of `up` for a cluster of the test's own, which goes in the end."""
    if os.geteuid() != 0:
        pytest.skip("a cluster needs root")
    with state_folder():
        try:
            yield f"--name {_NAME} --ssh-port {free_port()} --variant {default_variant()}"
        finally:
            stop(_NAME, Events())


def in_container(host: str, *command: str) -> str:
    argv = ["podman", "exec", f"cellblock-{_NAME}-{host}", *command]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def test_what_the_page_says_works_in_its_order(own_cluster: str, tmp_path: Path) -> None:
    site, project = tmp_path / "site", Path(__file__).parents[3]
    said: dict[str, str] = {}
    for line in lines_for("site-images.md", "test_what_the_page_says_works_in_its_order"):
        typed = line.replace("/srv/site", str(site)).replace("--name site", f"--name {_NAME}")
        if line.startswith("python3 build.py up "):
            typed += f" {own_cluster}"
        if "down --purge" in line:
            # Before it goes: what its containers are.
            assert in_container("login", "which", "tree").strip() == "/usr/bin/tree"
            assert "3" in in_container("login", "cat", "/etc/ssh/sshd_config.d/site.conf")
            assert in_container("worker-1", "which", "lsof").strip() == "/usr/bin/lsof"
            changed = type_line(
                f"python3 build.py cluster diff {site}/cluster.yaml {own_cluster.partition(' --ssh')[0]}",
                project,
                allowed=(0, 1),
            )
            # The port is the test's; the images are those of the file.
            assert "another build" not in changed
        said[line] = type_line(typed, project)
    (listed,) = [text for line, text in said.items() if " targets " in line]
    assert f"[{site}/images/worker/image.yaml, in place of {project}/images/worker/image.yaml]" in listed
    (differs,) = [text for line, text in said.items() if " diff " in line]
    assert "+ tree" in differs
    assert "/etc/ssh/sshd_config.d/site.conf" in differs
    (ran,) = [text for line, text in said.items() if " shell " in line]
    assert {"worker-1", "worker-2"} <= set(ran.split())
    assert list((site / "images/locks").glob("*.lock.yaml"))


def test_images_that_other_folders_shaped_are_refused(own_cluster: str, tmp_path: Path) -> None:
    """The store has one image of a name; who audits or pushes it is told whose that is."""
    site, project = tmp_path / "images", Path(__file__).parents[3]
    (site / "slurm").mkdir(parents=True)
    (site / "slurm/image.yaml").write_text("summary: ours\nfrom: slurm\nenv: {SITE: 'yes'}\n")
    option = f"-v {default_variant()}"
    type_line(f"python3 build.py build slurm {option} --images {site}", project)
    type_line(f"python3 build.py audit slurm {option} --images {site}", project)
    refused = type_line(f"python3 build.py audit slurm {option}", project, allowed=(1,))
    assert f"was last built with other definitions than are named here: --images {site}" in refused
    # What it stands on is the same with and without.
    type_line(f"python3 build.py audit base {option}", project)
    type_line(f"python3 build.py build slurm {option}", project)
    type_line(f"python3 build.py audit slurm {option}", project)
    refused = type_line(f"python3 build.py audit slurm {option} --images {site}", project, allowed=(1,))
    assert "without --images" in refused


def test_nothing_to_do_is_known_of_a_folder_and_not_of_its_name(tmp_path: Path) -> None:
    """`build` remembers its command line, in which a folder's name begins where it is typed."""
    if os.geteuid() != 0:
        pytest.skip("a build needs root")
    for name in ("one", "two"):
        (tmp_path / name / "images/base/files/etc").mkdir(parents=True)
        (tmp_path / name / "images/base/image.yaml").write_text("summary: ours\nfrom: base\n")
        # The key of no earlier run.
        (tmp_path / name / "images/base/files/etc/site").write_text(f"{name} {uuid4()}\n")
    # The launcher, which answers before anything is imported.
    program = Path(__file__).parents[3] / "build.py"
    line = f"python3 {program} build base -v {default_variant()} --images images"
    said = [type_line(line, tmp_path / folder) for folder in ("one", "one", "two", "two")]
    assert ["up to date" in each for each in said] == [False, True, False, True]
    (tmp_path / "two/images/base/files/etc/site").write_text("changed\n")
    assert "up to date" not in type_line(line, tmp_path / "two")


def test_equal_definitions_in_another_folder_are_that_folders(own_cluster: str, tmp_path: Path) -> None:
    project, option = Path(__file__).parents[3], f"-v {default_variant()}"
    for name in ("one", "two"):
        (tmp_path / name / "base").mkdir(parents=True)
        (tmp_path / name / "base/image.yaml").write_text("summary: ours\nfrom: base\nenv: {SITE: 'yes'}\n")
    for name in ("one", "two", "one"):
        own = f"--images {tmp_path / name}"
        type_line(f"python3 {project}/build.py build base {option} {own}", project)
        type_line(f"python3 build.py audit base {option} {own}", project)
    type_line(f"python3 build.py build base {option}", project)
