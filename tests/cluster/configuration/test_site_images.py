# SPDX-License-Identifier: Apache-2.0
"""A cluster of a site's own images: which ones run, and what is wrong with a file that names them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.cluster import ClusterSpec
from cellblock.cluster.configuration import template_facts
from cellblock.cluster.definition.node_set import NodeSet
from cellblock.cluster.engine.container_specs import plan
from cellblock.cluster.up_request import UpRequest, cluster_file, cluster_spec, images_of
from cellblock.errors import DefinitionError, UsageError

ENTRYPOINT = "entrypoint: [tini, --, cellblock-init, login]\n"
FILE = """\
name: ours
images: [images]
login: {image: gateway}
node_sets:
  - {name: cpu, count: 2}
  - {name: gpu, image: worker-gpu}
partitions: [{name: main, default: true}]
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A repository with images, and a cluster file that names them."""
    for name, text in {
        "gateway": f"summary: g\nfrom: login\npackages: [tree]\n{ENTRYPOINT}",
        "worker-gpu": "summary: w\nfrom: worker\nentrypoint: [tini, --, cellblock-init, worker]\n",
        "ours": "summary: j\nfrom: jail\n",
    }.items():
        (tmp_path / "site/images" / name).mkdir(parents=True)
        (tmp_path / "site/images" / name / "image.yaml").write_text(text)
    (tmp_path / "site/cluster.yaml").write_text(FILE)
    return tmp_path / "site"


def spec_of(file: Path, **options: object) -> ClusterSpec:
    request = UpRequest(file=file, **options)  # type: ignore[arg-type]
    return cluster_spec(request, cluster_file(request))


def test_a_file_names_folders_that_begin_where_it_is_and_images_of_theirs(site: Path) -> None:
    found = spec_of(site / "cluster.yaml").file
    assert found.images == (str(site / "images"),)
    assert images_of(found) == ("worker", "worker-gpu", "gateway", "controller")


def test_an_option_adds_a_folder_and_names_none_twice(site: Path, tmp_path: Path) -> None:
    (tmp_path / "more/tools").mkdir(parents=True)
    (tmp_path / "more/tools/image.yaml").write_text("summary: t\nfrom: base\n")
    sites = (site / "images", tmp_path / "more")
    assert spec_of(site / "cluster.yaml", sites=sites).file.images == tuple(map(str, sites))


def test_each_container_runs_the_image_of_its_node_set(
    site: Path, spec: Callable[..., ClusterSpec], tmp_path: Path
) -> None:
    file = spec_of(site / "cluster.yaml").file
    made = replace(spec(), file=file, images={name: f"id of {name}" for name in images_of(file)})
    facts = template_facts.facts(made, 4, 8192, {})
    runs = {one.hostname: one.image for one in plan(made, facts, tmp_path, (), "v2", 1000)}
    assert runs == {
        "controller": "id of controller",
        "cpu-1": "id of worker",
        "cpu-2": "id of worker",
        "gpu-1": "id of worker-gpu",
        "login": "id of gateway",
    }


def test_a_node_set_says_which_image_its_own_nodes_run_and_no_others() -> None:
    """`gpu-1` is no node of `gpu` when that has none of the number."""
    file = cluster_file(UpRequest(workers=1))
    file = file.model_copy(update={"node_sets": (NodeSet(name="a", image="x"), NodeSet(name="a-1"))})
    assert file.image_of("worker", "a-1") == "x"
    assert file.image_of("worker", "a-1-1") == "worker"
    assert file.image_of("controller", "controller") == "controller"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("images: [images]", "images: [nothere]", "cluster.yaml:2: images.0: there is no folder"),
        (
            "gateway",
            "gatewy",
            "cluster.yaml:3: login.image: there is no image 'gatewy'; did you mean 'gateway'?",
        ),
        ("worker-gpu", "gpu", "cluster.yaml:6: node_sets.1.image: there is no image 'gpu'"),
        (
            "gateway",
            "worker-gpu",
            "cluster.yaml:3: login.image: image worker-gpu does not start a login node",
        ),
        ("worker-gpu", "ours", "cluster.yaml:6: node_sets.1.image: image ours does not start a worker node"),
        ("gateway", "Gate Way", "cluster.yaml:3: login.image: 'Gate Way' is no image's name"),
        (
            "name: ours",
            "jail: {image: jial}",
            "cluster.yaml:1: jail.image: there is no image 'jial'; did you mean",
        ),
        ("name: ours", "jail: {image: gateway}", "cluster.yaml:1: jail.image: image gateway is no jail"),
    ],
)
def test_what_is_wrong_is_named_with_file_line_and_key(site: Path, old: str, new: str, message: str) -> None:
    path = site / "cluster.yaml"
    path.write_text(FILE.replace(old, new))
    with pytest.raises((DefinitionError, UsageError)) as raised:
        spec_of(path)
    assert f"{site}/{message}" in str(raised.value)
    assert raised.value.hint


def test_a_jail_of_the_site_may_be_named_by_an_option(site: Path) -> None:
    assert spec_of(site / "cluster.yaml", jail="ours").file.jail.image == "ours"
    with pytest.raises(UsageError, match=r"^--jail: there is no image 'oours'; did you mean 'ours'"):
        spec_of(site / "cluster.yaml", jail="oours")
