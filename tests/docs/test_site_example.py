# SPDX-License-Identifier: Apache-2.0
"""site-images.md and its example repository, as far as nothing is built.

tests/integration/cluster/test_site_images.py types the page.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from cellblock.cluster.definition.cluster_file import ClusterFile, load_cluster_file
from cellblock.cluster.up_request import UpRequest, cluster_file, cluster_spec, images_of
from cellblock.paths import PROJECT
from cellblock.project import Project
from tests.documented import blocks_for, lines_for, type_line
from tests.integration.checkout import copy_checkout

EXAMPLE = PROJECT / "docs/examples/site"
PAGE = "site-images.md"


def test_the_page_shows_the_files_of_the_example() -> None:
    shown = [block.text for block in blocks_for(PAGE, "test_the_page_shows_the_files_of_the_example")]
    kept = [
        (EXAMPLE / f"images/{name}/image.yaml").read_text().partition("\n")[2]  # without the comment
        for name in ("login-tools", "worker")
    ]
    assert shown == kept


def test_the_example_is_what_the_page_says() -> None:
    images = Project(sites=(EXAMPLE / "images",)).images
    assert images["login-tools"].fields.parent == "login"
    assert images["worker"].fields.parent == "worker.overridden"
    assert images["worker"].fields.entrypoint == images["worker.overridden"].fields.entrypoint
    assert (images["login-tools"].files / "etc/ssh/sshd_config.d/site.conf").is_file()


def test_its_cluster_runs_its_images() -> None:
    file = cluster_file(UpRequest(file=EXAMPLE / "cluster.yaml"))
    assert file.images == (str(EXAMPLE / "images"),)
    assert images_of(file) == ("worker", "login-tools", "controller")
    assert cluster_spec(UpRequest(), file).name == "site"


def test_the_cluster_of_the_page_can_be_loaded(tmp_path: Path) -> None:
    (block,) = blocks_for(PAGE, "test_the_cluster_of_the_page_can_be_loaded")
    partitions = "partitions: [{name: main, default: true}]\n"
    path = tmp_path / "cluster.yaml"
    path.write_text(block.text + partitions)
    (tmp_path / "images").mkdir()
    file = load_cluster_file(path)
    assert isinstance(file, ClusterFile)
    assert file.image_of("worker", "big-1") == file.image_of("worker", "worker-2") == "worker"
    assert file.image_of("login", "login") == "login-tools"


def test_jobs_of_a_repository_that_has_this_one_as_a_submodule(tmp_path: Path) -> None:
    add, write = lines_for(PAGE, "test_jobs_of_a_repository_that_has_this_one_as_a_submodule")
    origin, site = tmp_path / "origin", tmp_path / "site"
    copy_checkout(origin)
    (site / "images/tools").mkdir(parents=True)
    (site / "images/tools/image.yaml").write_text("summary: t\nfrom: base\npackages: [jq]\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "add", "-A"], cwd=origin, check=True)
    subprocess.run([*git, "commit", "-qm", "all"], cwd=origin, check=True)
    subprocess.run(["git", "init", "-q"], cwd=site, check=True)
    type_line(
        add.replace("https://HOST/cellblock.git", str(origin)),
        site,
        variables={"GIT_ALLOW_PROTOCOL": "file"},
    )
    assert "python3 cellblock/build.py " in write
    type_line(
        write.replace("python3 cellblock/build.py ", "python3 build.py ") + " --variant debian13",
        site,
        variables={"PYTHONPATH": str(site / "cellblock")},
    )
    text = (site / ".github/workflows/images.yml").read_text()
    workflow = yaml.safe_load(text)
    checkout, _, images = workflow["jobs"]["debian13"]["steps"]
    assert checkout["with"]["submodules"] is True
    build, push = images["run"].splitlines()[-2:]
    assert build.startswith("$root python3 cellblock/build.py build --variant debian13")
    assert build.endswith("--images images")
    assert push.endswith("--images images")
    assert "python3 cellblock/build.py matrix" in text.replace("\n# ", " ")
