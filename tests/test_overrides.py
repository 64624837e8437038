# SPDX-License-Identifier: Apache-2.0
"""A site's own images and variants: what they add, override, and what is wrong with them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cellblock.errors import CellblockError, DefinitionError, UsageError
from cellblock.graph import build_order
from cellblock.overrides import locks_folder, overrides_text, shaped_by
from cellblock.paths import PROJECT
from cellblock.project import Project
from tests.test_definition import declare

TREE = {
    "base": "summary: b\n",
    "slurm": "summary: s\nfrom: base\nusers: [{name: slurm, uid: 640, gid: 640}]\n",
    "plugins": "summary: p\nbuild: {in: base, sources: {native: /src}, run: [make], output: /out}\n",
    "worker": "summary: w\nfrom: slurm\nartifacts:\n  from: plugins\n  files: {/out/x: /x}\n"
    "entrypoint: [tini, --, cellblock-init, worker]\n",
    "devel": "summary: d\nfrom: base\npackages: [gcc]\ndefault: false\n",
}
VARIANTS = """
distributions:
  debian13: {id: debian, version: "13", codename: trixie, slurm: "24.11", stable: true}
variants:
  debian13: {distribution: debian13}
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What stands for images/ of this tree."""
    folder = tmp_path / "tree"
    folder.mkdir()
    declare(folder, **TREE)
    (folder / "variants.yaml").write_text(VARIANTS)
    for path in ("slurm/files/usr/bin/cellblock-init", "worker/files/usr/lib/cellblock/role-worker"):
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_text("#!/bin/sh\n")
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


def fault(tree: Path, *sites: Path) -> str:
    """What is wrong, in the words of the error, without the folder of the test."""
    with pytest.raises(CellblockError) as raised:
        Project(tree, sites).all_in_order()
    assert raised.value.exit_status == 2
    assert raised.value.hint
    return str(raised.value).replace(f"{tree.parent}/", "")


def test_a_sites_image_stands_beside_those_here_and_on_them(tree: Path, site: Path) -> None:
    declare(site, tools="summary: t\nfrom: worker\npackages: [tree]\n")
    project = Project(tree, (site,))
    assert [image.name for image in project.in_order(["tools"])] == [
        *("base", "slurm", "plugins", "worker", "tools")
    ]
    assert project.images["tools"].source.path == site / "tools/image.yaml"
    assert shaped_by("tools", project.images) == (str(site),)
    assert shaped_by("worker", project.images) == ()


def test_images_here_are_made_from_an_override(tree: Path, site: Path) -> None:
    declare(site, base="summary: ours\npackages: [less]\n")
    project = Project(tree, (site,))
    assert project.images["base"].fields.summary == "ours"
    assert set(project.images) == set(TREE)
    assert shaped_by("worker", project.images) == (str(site),)
    assert list(overrides_text(project.images)) == [
        f"base is {site / 'base/image.yaml'}, in place of {tree / 'base/image.yaml'}"
    ]


def test_an_override_made_from_its_own_name_stands_on_what_it_takes_the_place_of(
    tree: Path, site: Path
) -> None:
    declare(site, worker="summary: ours\nfrom: worker\npackages: [lsof]\n")
    project = Project(tree, (site,))
    worker, below = project.images["worker"], project.images["worker.overridden"]
    assert worker.fields.parent == below.name
    assert below.fields.artifacts[0].image == "plugins"
    assert below.folder == tree / "worker"
    # Started as before; the image below is a part, which nobody builds by itself.
    assert worker.fields.entrypoint == below.fields.entrypoint != []
    assert "worker" in [image.name for image in project.in_order()]
    assert not below.fields.default
    # A key says what an image is made of: equal for the same definition, whatever it is called.
    assert below.key_name == Project(tree).images["worker"].key_name != worker.key_name


def test_an_override_may_take_files_of_the_image_that_it_takes_the_place_of(tree: Path, site: Path) -> None:
    declare(
        site,
        plugins="summary: ours\nfrom: base\nartifacts: {from: plugins, files: {/out: /out}}\n",
    )
    images = Project(tree, (site,)).images
    assert images["plugins"].fields.artifacts[0].image == "plugins.overridden"
    assert [image.name for image in build_order(images, ["plugins"])] == [
        *("base", "plugins.overridden", "plugins")
    ]


def test_an_override_is_built_by_default_when_the_image_here_is(tree: Path, site: Path) -> None:
    declare(site, devel="summary: ours\nfrom: base\npackages: [g++]\n", base="summary: ours\n")
    images = Project(tree, (site,)).images
    assert not images["devel"].fields.default
    assert images["base"].fields.default


def test_of_two_folders_the_later_one_goes_first(tree: Path, site: Path, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    declare(site, worker="summary: first\nfrom: worker\npackages: [lsof]\n")
    declare(second, worker="summary: second\nfrom: worker\npackages: [strace]\n")
    project = Project(tree, (site, second))
    worker = project.images["worker"]
    names = [image.name for image in project.in_order(["worker"])]
    assert names[-3:] == ["worker.overridden", "worker.overridden.overridden", "worker"]
    assert [project.images[name].folder.parent for name in names[-3:]] == [tree, site, second]
    assert list(overrides_text(project.images)) == [
        f"worker is {second / 'worker/image.yaml'}, in place of {site / 'worker/image.yaml'}, "
        f"{tree / 'worker/image.yaml'}",
        f"worker.overridden.overridden is {site / 'worker/image.yaml'}, in place of "
        f"{tree / 'worker/image.yaml'}",
    ]
    assert worker.fields.entrypoint[-1] == "worker"
    assert locks_folder(project.folders) == second / "locks"


def test_locks_lie_beside_the_sites_definitions_and_without_a_site_here(tree: Path, site: Path) -> None:
    declare(site, base="summary: ours\n")
    assert Project(tree, (site,)).locks == site / "locks"
    assert Project(tree).locks == PROJECT / "locks"


def test_variants_of_a_site_are_added_and_take_the_place_of_those_here(tree: Path, site: Path) -> None:
    (site / "variants.yaml").write_text(
        "variants:\n  ours: {distribution: debian13, mirror: 'http://mirror.example/debian'}\n"
        "  debian13: {distribution: debian13, architectures: [amd64]}\n"
    )
    variants = Project(tree, (site,)).variants
    assert variants["ours"].mirror == "http://mirror.example/debian"
    assert variants["debian13"].architectures == ("amd64",)
    (site / "variants.yaml").write_text(
        "distributions:\n"
        '  debian13: {id: debian, version: "13", codename: trixie, slurm: "25.05", stable: true}\n'
    )
    assert Project(tree, (site,)).variants["debian13"].slurm.release == "25.05"


def test_a_fault_in_a_sites_variants_names_its_file(tree: Path, site: Path) -> None:
    file = site / "variants.yaml"
    file.write_text("variants:\n  ours: {distribution: debian99}\n")
    with pytest.raises(
        DefinitionError, match=re.escape(f"{file}:2: variants.ours.distribution: there is no")
    ):
        _ = Project(tree, (site,)).variants
    file.write_text("variants:\n  ours: {distribution: debian13, mirorr: x}\n")
    with pytest.raises(DefinitionError, match=re.escape(f"{file}:2: variants.ours.mirorr: unknown key; did")):
        _ = Project(tree, (site,)).variants


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (
            {"tools": "summary: t\nfrom: base\npackges: [x]\n"},
            "site/tools/image.yaml:3: packges: unknown key; did",
        ),
        (
            {"tools": "summary: t\nfrom: wroker\n"},
            "site/tools/image.yaml:2: from: there is no image 'wroker'; did you mean 'worker'?",
        ),
        (
            {"tools": "summary: t\nfrom: tools\n"},
            "site/tools/image.yaml:2: from: tools needs itself, and there is no image of that name here",
        ),
        # Over both trees: the worker here needs plugins, which here is the site's, and that needs the worker.
        (
            {"plugins": "summary: p\nfrom: base\nartifacts: {from: worker, files: {/x: /out/x}}\n"},
            "plugins -> worker -> plugins",
        ),
        (
            {"slurm": "summary: s\nfrom: base\n"},
            "site/slurm/image.yaml:1: users: slurm lacks the user slurm (uid 640, gid 640) of tree/slurm",
        ),
        (
            {"worker": "summary: w\nfrom: slurm\n"},
            "site/worker/image.yaml:1: entrypoint: missing; worker is started, as tree/worker",
        ),
        (
            {"worker": "summary: w\nfrom: slurm\nentrypoint: [tini, --, cellblock-init, worker]\n"},
            "site/worker/image.yaml:3: entrypoint: cellblock-init worker runs /usr/lib/cellblock/role-wor",
        ),
        (
            {"slurm": "summary: s\nbuild: {in: base, sources: {native: /src}, run: [make], output: /out}\n"},
            "site/slurm/image.yaml:2: build: slurm would hold only what is compiled, and image worker",
        ),
        (
            {"ours": "summary: s\nbuild:\n  in: base\n  sources: {nothere: /s}\n  run: [a]\n  output: /o\n"},
            "site/ours/image.yaml:4: build.sources.nothere: there is no folder nothere in site, and none in",
        ),
        ({"Tools": "summary: t\nfrom: base\n"}, "site/Tools/image.yaml:1: 'Tools' cannot name an image"),
        ({"locks": "summary: t\nfrom: base\n"}, "site/locks/image.yaml:1: 'locks' cannot name an image"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(
    tree: Path, site: Path, images: dict[str, str], message: str
) -> None:
    declare(site, **images)
    assert message in fault(tree, site)


def test_a_circle_names_the_files_of_both_trees(tree: Path, site: Path) -> None:
    declare(site, plugins="summary: p\nfrom: base\nartifacts: {from: worker, files: {/x: /out/x}}\n")
    said = fault(tree, site)
    assert "site/plugins/image.yaml" in said
    assert "tree/worker/image.yaml" in said


def test_sources_of_a_site_begin_in_its_folder(tree: Path, site: Path) -> None:
    declare(
        site,
        ours="summary: o\nbuild: {in: base, sources: {src: /src, native: /native}, run: [a], output: /out}\n",
    )
    (site / "src").mkdir()
    image = Project(tree, (site,)).images["ours"]
    assert image.source_folder("src") == site / "src"
    assert image.source_folder("native") == PROJECT / "native"


@pytest.mark.parametrize("name", ["worker", "tools"])
def test_a_folder_without_its_definition_is_an_error(tree: Path, site: Path, name: str) -> None:
    declare(site, other="summary: o\nfrom: base\n")
    (site / name / "files").mkdir(parents=True)
    said = fault(tree, site)
    assert f"site/{name}: there is no image.yaml in this folder" in said
    assert ("`from: worker`" in said) == (name == "worker")


def test_other_folders_of_a_site_are_its_own_affair(tree: Path, site: Path) -> None:
    declare(site, tools="summary: t\nfrom: base\n")
    (site / ".git").mkdir()
    (site / "scripts").mkdir()
    assert "scripts" not in Project(tree, (site,)).images


def test_links_are_followed_and_those_that_lead_nowhere_are_errors(
    tree: Path, site: Path, tmp_path: Path
) -> None:
    declare(site, tools="summary: t\nfrom: base\n")
    (tmp_path / "link").symlink_to(site)
    (site / "same").symlink_to("tools")
    assert {"tools", "same"} <= set(Project(tree, (tmp_path / "link",)).images)
    (tmp_path / "round").symlink_to("round")
    assert "--images round: cannot be followed" in fault(tree, tmp_path / "round")
    (site / "gone").symlink_to("nothere")
    assert "site/gone: this link leads to nothere, which is not there" in fault(tree, site)
    (site / "gone").unlink()
    (site / "same").unlink()
    (site / "tools/image.yaml").unlink()
    (site / "tools/image.yaml").symlink_to("nothere.yaml")
    assert "site/tools/image.yaml: this link leads to nothere.yaml" in fault(tree, site)


def test_variants_of_a_link_that_leads_nowhere_are_an_error(tree: Path, site: Path) -> None:
    (site / "variants.yaml").symlink_to("nothere.yaml")
    with pytest.raises(DefinitionError, match=re.escape(f"{site / 'variants.yaml'}: cannot be read")):
        _ = Project(tree, (site,)).variants


def test_folders_that_cannot_be_a_sites(tree: Path, site: Path, tmp_path: Path) -> None:
    declare(site, tools="summary: t\nfrom: base\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    file = tmp_path / "file"
    file.write_text("")
    assert "--images nothere: there is no such folder" in fault(tree, Path("nothere"))
    assert "--images file: this is no folder" in fault(tree, file)
    assert "empty holds neither NAME/image.yaml nor variants.yaml" in fault(tree, empty)
    assert "is named twice" in fault(tree, site, site)
    for inside in (tree, tree / "worker"):
        assert "is part of this tree's own" in fault(tree, inside)
    # Near misses.
    assert "did you mean --images site?" in fault(tree, site / "tools")
    (tmp_path / "repository").mkdir()
    site.rename(tmp_path / "repository/images")
    assert "did you mean --images repository/images?" in fault(tree, tmp_path / "repository")


def test_an_image_that_nobody_has_is_looked_for_in_all_folders(tree: Path, site: Path) -> None:
    declare(site, tools="summary: t\nfrom: base\n")
    (site / "scripts").mkdir()
    with pytest.raises(UsageError, match=re.escape(f"{site / 'scripts'}: there is no image.yaml")):
        Project(tree, (site,)).in_order(["scripts"])
    with pytest.raises(UsageError, match="did you mean 'tools'"):
        Project(tree, (site,)).in_order(["tolls"])
