# SPDX-License-Identifier: Apache-2.0
"""image.yaml: what it may say, and how a mistake is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.definition import load_images
from cellblock.errors import DefinitionError, UsageError
from cellblock.graph import build_order
from cellblock.template import Renderer
from cellblock.variants import load_variants


def declare(folder: Path, **images: str) -> Path:
    for name, text in images.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "image.yaml").write_text(text)
    return folder


def test_the_projects_images_are_all_declared() -> None:
    images = load_images(paths.PROJECT / "images")
    assert {"base", "slurm", "toolchain", "plugins", "controller", "worker", "login", "jail"} <= set(images)


def test_images_above_one_with_manual_pages_have_those_of_their_own_packages_too() -> None:
    images = load_images(paths.PROJECT / "images")
    above = [
        image
        for image in images.values()
        if image.fields.parent and images[image.fields.parent].fields.manuals
    ]
    assert [image.name for image in above if not image.fields.manuals] == []
    assert "jail-devel" in [image.name for image in above]


def test_an_image_needs_its_parent_its_toolchain_and_the_sources_of_its_artifacts(tmp_path: Path) -> None:
    images = load_images(
        declare(
            tmp_path,
            base="summary: b\n",
            tools="summary: t\nfrom: base\n",
            out="summary: o\nbuild: {in: tools, sources: {}, run: [make], output: /out}\n",
            top="summary: t\nfrom: base\nartifacts: {from: out, files: {/out/x: /x}}\n",
        )
    )
    assert set(images["top"].needs()) == {"base", "out"}
    order = [image.name for image in build_order(images, ["top"])]
    assert order.index("base") < order.index("tools") < order.index("out") < order.index("top")


def test_an_unknown_key_names_file_line_key_and_near_miss(tmp_path: Path) -> None:
    declare(tmp_path, base="summary: b\npackges: [x]\n")
    with pytest.raises(DefinitionError) as raised:
        load_images(tmp_path)
    assert "base/image.yaml:2: packges: unknown key; did you mean 'packages'?" in str(raised.value)
    assert raised.value.exit_status == 2


def test_a_nested_unknown_key_suggests_from_its_own_mapping(tmp_path: Path) -> None:
    declare(tmp_path, base="summary: b\nusers:\n  - {name: a, uid: 1, gid: 1, shel: /bin/sh}\n")
    with pytest.raises(
        DefinitionError, match=r"image\.yaml:3: users\.0\.shel: unknown key; did you mean 'shell'"
    ):
        load_images(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("from: base\n", "summary: missing"),
        ("summary: x\npackages: gcc\n", "2: packages: must be a list"),
        ("summary: x\nentrypoint: /sbin/init\n", "2: entrypoint: must be a list"),
        ("summary: x\nenv:\n  A=B: c\n", "2: env: 'A=B' cannot name a variable"),
        ("summary: x\nenv: {'': c}\n", "2: env: '' cannot name a variable"),
        ("- a\n", "must be a mapping"),
        ("", "must be a mapping"),
        ("summary: x\nbuild: {in: base, sources: {}, run: [a], output: out}\n", "must be an absolute path"),
        ("summary: x\nfrom: base\nbuild: {in: base, sources: {}, run: [a], output: /o}\n", "excludes 'from'"),
    ],
)
def test_wrong_definitions_name_the_key(tmp_path: Path, text: str, message: str) -> None:
    declare(tmp_path, base="summary: b\n", x=text)
    with pytest.raises(DefinitionError) as raised:
        load_images(tmp_path)
    assert message in str(raised.value)
    assert "x/image.yaml" in str(raised.value)


def test_a_folder_without_a_definition_is_called_that(tmp_path: Path) -> None:
    declare(tmp_path, base="summary: b\n", x="summary: x\nfrom: empty\n")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DefinitionError, match=r"x/image\.yaml:2: from: .* \S+/empty has no image\.yaml"):
        load_images(tmp_path)
    declare(tmp_path, x="summary: x\n")
    with pytest.raises(UsageError, match=r"/empty: there is no image\.yaml in this folder"):
        build_order(load_images(tmp_path), ["empty"])


def test_a_need_that_does_not_exist_is_found_where_it_stands(tmp_path: Path) -> None:
    declare(tmp_path, base="summary: b\n", x="summary: x\nfrom: bsae\n")
    with pytest.raises(
        DefinitionError, match=r"x/image\.yaml:2: from: there is no image 'bsae'; did you mean 'base'"
    ):
        load_images(tmp_path)


def test_a_cycle_names_its_members_and_a_place(tmp_path: Path) -> None:
    images = load_images(
        declare(
            tmp_path,
            a="summary: a\nfrom: b\n",
            b="summary: b\nfrom: c\n",
            c="summary: c\nfrom: a\n",
        )
    )
    with pytest.raises(DefinitionError, match=r"c/image\.yaml:2: .*a -> b -> c -> a"):
        build_order(images, ["a"])


def test_an_image_that_needs_itself_is_a_cycle(tmp_path: Path) -> None:
    images = load_images(declare(tmp_path, a="summary: a\nfrom: a\n"))
    with pytest.raises(DefinitionError, match="a -> a"):
        build_order(images, ["a"])


def test_an_unknown_image_is_wrong_usage(tmp_path: Path) -> None:
    images = load_images(declare(tmp_path, worker="summary: w\n"))
    with pytest.raises(UsageError, match="did you mean 'worker'") as raised:
        build_order(images, ["wroker"])
    assert raised.value.exit_status == 2


def test_no_definitions_at_all(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"no image\.yaml"):
        load_images(tmp_path)


@pytest.mark.parametrize(
    ("user", "shared"),
    [
        ("{name: bob, uid: 64030, gid: 1000}", "uid 64030, of slurm"),
        ("{name: bob, uid: 1000, gid: 64030}", "gid 64030, of slurm"),
        ("{name: slurm, uid: 1000, gid: 1000}", "the name of slurm"),
    ],
)
def test_a_user_with_anothers_ids_is_refused(tmp_path: Path, user: str, shared: str) -> None:
    slurm = "{name: slurm, uid: 64030, gid: 64030}"
    declare(
        tmp_path,
        base=f"summary: b\nusers: [{slurm}]\n",
        middle="summary: m\nfrom: base\n",
        top=f"summary: t\nfrom: middle\nusers:\n  - {{name: ada, uid: 7000, gid: 7000}}\n  - {user}\n",
        other="summary: o\nusers: [{name: else, uid: 64030, gid: 64030}]\n",
    )
    with pytest.raises(DefinitionError) as raised:
        load_images(tmp_path)
    expected = rf"top/image\.yaml:5: users: \w+ has {shared} \(\S+base/image\.yaml:2\)$"
    assert re.search(expected, raised.value.message), raised.value.message


@pytest.mark.parametrize("name", ["SIGFOO", "TERM", "sigterm", "0", "65", "SIGRTMIN+31"])
def test_a_signal_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    declare(tmp_path, base=f"summary: b\nstop_signal: '{name}'\n")
    with pytest.raises(DefinitionError, match=r"base/image\.yaml:2: stop_signal: there is no signal '"):
        load_images(tmp_path)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGRTMIN+3", "SIGRTMIN", "37"])
def test_a_signal_may_be_a_name_or_a_number(tmp_path: Path, name: str) -> None:
    declare(tmp_path, base=f"summary: b\nstop_signal: '{name}'\n")
    assert load_images(tmp_path)["base"].fields.stop_signal == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ variant.nmae }}", "'variant' has no attribute 'nmae'"),
        ("{{ slurm.version }}", "'slurm' has no attribute 'version'"),
        ("{{ distribution.family }}", "'distribution' has no attribute 'family'"),
        ("{{ cuda.runtime }}", "'cuda' is nothing in this variant and has no attribute 'runtime'"),
        ("{{ nothing }}", "'nothing' is undefined"),
    ],
)
def test_an_unknown_name_of_a_template_is_said_in_the_templates_words(text: str, message: str) -> None:
    variant = load_variants(paths.PROJECT / "images" / "variants.yaml")["debian13"]
    with pytest.raises(DefinitionError) as raised:
        Renderer(variant).text(text, "image.yaml:3: run")
    assert raised.value.message == f"image.yaml:3: run: {message}"
