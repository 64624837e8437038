# SPDX-License-Identifier: Apache-2.0
"""A site's own images, built and run: docs/site-images.md is typed, with its example repository.

In a copy of the checkout, whose images are its own: other tests audit and push `worker` meanwhile.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.cluster import stop
from cellblock.events import Events
from cellblock.launcher.up_to_date import cached_answer
from tests.documented import lines_for, type_line
from tests.integration.checkout import copy_checkout
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


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the project."""
    if os.geteuid() != 0:
        pytest.skip("a build needs root")
    return copy_checkout(tmp_path / "checkout")


def type_in(checkout: Path, line: str, folder: Path | None = None, allowed: tuple[int, ...] = (0,)) -> str:
    """Type a line in the copy, or in `folder`, to the copy's program."""
    return type_line(line, folder or checkout, variables={"PYTHONPATH": str(checkout)}, allowed=allowed)


def in_container(host: str, *command: str) -> str:
    argv = ["podman", "exec", f"cellblock-{_NAME}-{host}", *command]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def test_what_the_page_says_works_in_its_order(own_cluster: str, checkout: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
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
            changed = type_in(
                checkout,
                f"python3 build.py cluster diff {site}/cluster.yaml {own_cluster.partition(' --ssh')[0]}",
                allowed=(0, 1),
            )
            # The port is the test's; the images are those of the file.
            assert "another build" not in changed
        said[line] = type_in(checkout, typed)
    (listed,) = [text for line, text in said.items() if " targets " in line]
    assert f"[{site}/images/worker/image.yaml, in place of {checkout}/images/worker/image.yaml]" in listed
    (differs,) = [text for line, text in said.items() if " diff " in line]
    assert "+ tree" in differs
    assert "/etc/ssh/sshd_config.d/site.conf" in differs
    (ran,) = [text for line, text in said.items() if " shell " in line]
    assert {"worker-1", "worker-2"} <= set(ran.split())
    assert list((site / "images/locks").glob("*.lock.yaml"))


def test_images_that_other_folders_shaped_are_refused(checkout: Path, tmp_path: Path) -> None:
    """The store has one image of a name; who audits or pushes it is told whose that is."""
    site = tmp_path / "images"
    (site / "slurm").mkdir(parents=True)
    (site / "slurm/image.yaml").write_text("summary: ours\nfrom: slurm\nenv: {SITE: 'yes'}\n")
    option = f"-v {default_variant()}"
    type_in(checkout, f"python3 build.py build slurm {option} --images {site}")
    type_in(checkout, f"python3 build.py audit slurm {option} --images {site}")
    refused = type_in(checkout, f"python3 build.py audit slurm {option}", allowed=(1,))
    assert f"was last built with other definitions than are named here: --images {site}" in refused
    # What it stands on is the same with and without.
    type_in(checkout, f"python3 build.py audit base {option}")
    type_in(checkout, f"python3 build.py build slurm {option}")
    type_in(checkout, f"python3 build.py audit slurm {option}")
    refused = type_in(checkout, f"python3 build.py audit slurm {option} --images {site}", allowed=(1,))
    assert "without --images" in refused


def test_nothing_to_do_is_known_of_a_folder_and_not_of_its_name(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`build` remembers its command line, in which a folder's name begins where it is typed."""
    for name in ("one", "two"):
        (tmp_path / name / "images/base").mkdir(parents=True)
        (tmp_path / name / "images/base/image.yaml").write_text(
            f"summary: ours\nfrom: base\nenv: {{SITE: {name}}}\n"
        )
    words = ["base", "-v", default_variant(), "--images", "images"]

    def answer(name: str) -> str | None:
        """What the launcher would say, before anything is imported."""
        monkeypatch.chdir(tmp_path / name)
        return cached_answer(str(checkout), words)

    assert answer("one") is None
    for name, other in (("one", "two"), ("two", "one")):
        # The first one may make a layer, and only one with nothing to do is remembered after that.
        for _ in range(2):
            type_in(checkout, f"python3 build.py build {' '.join(words)}", tmp_path / name)
        assert "up to date" in (answer(name) or "")
        assert answer(other) is None
    (tmp_path / "two/images/base/image.yaml").write_text("summary: ours\nfrom: base\npackages: [less]\n")
    assert answer("two") is None


def test_equal_definitions_in_another_folder_are_that_folders(checkout: Path, tmp_path: Path) -> None:
    option = f"-v {default_variant()}"
    for name in ("one", "two"):
        (tmp_path / name / "base").mkdir(parents=True)
        (tmp_path / name / "base/image.yaml").write_text("summary: ours\nfrom: base\nenv: {SITE: 'yes'}\n")
    for name in ("one", "two", "one"):
        own = f"--images {tmp_path / name}"
        type_in(checkout, f"python3 build.py build base {option} {own}")
        type_in(checkout, f"python3 build.py audit base {option} {own}")
