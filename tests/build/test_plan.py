from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.build.mirrors import Archive
from cellblock.build.plan import PlannedImage, Planner, plan_all
from cellblock.definition import load_images
from cellblock.engine.recipe import Bootstrap, CompileIn, CopyFrom, Install, Overlay, Recipe, Shell
from cellblock.errors import DefinitionError
from cellblock.graph import build_order
from cellblock.variants import load_variants

VARIANTS = load_variants(paths.PROJECT / "images" / "variants.yaml")

BASE = "summary: b\npackages: [tini]\nusers: [{name: slurm, uid: 64030, gid: 64030}]\n"
TOP = """summary: t
from: base
packages: [a, "{{ 'old' if slurm.release == '22.05' }}", "{{ 'new' if slurm.release == '24.11' }}"]
run: ["echo {{ arch.gnu }}"]
entrypoint: [tini, --, "{{ slurm.plugin_dir }}"]
"""


@pytest.fixture
def definitions(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    for name, text in {"base": BASE, "top": TOP}.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "image.yaml").write_text(text)
    files = folder / "top" / "files" / "etc"
    files.mkdir(parents=True)
    (files / "release.j2").write_text("slurm {{ slurm.release }}\n")
    (files / "run").write_text("#!/bin/sh\n")
    (files / "run").chmod(0o700)
    return folder


def plan(folder: Path, variant: str = "debian13") -> tuple[Planner, dict[str, PlannedImage]]:
    images = load_images(folder)
    planner = Planner(VARIANTS[variant], Archive(()))
    return planner, dict(plan_all(planner, build_order(images, images)))


def recipe(folder: Path, staging: Path, image: str) -> Recipe:
    planner, planned = plan(folder)
    staging.mkdir(exist_ok=True)
    return planner.recipe(planned[image], staging, "again")


def test_a_base_is_bootstrapped_with_its_packages_and_then_gets_its_users(
    definitions: Path, tmp_path: Path
) -> None:
    steps = recipe(definitions, tmp_path / "s", "base").steps
    assert isinstance(steps[0], Bootstrap)
    assert steps[0].packages == ("tini",)
    assert isinstance(steps[1], Shell)
    assert "slurm:x:64030:64030::/nonexistent:/usr/sbin/nologin" in "\n".join(steps[1].lines)


def test_templates_choose_packages_by_release_and_empty_ones_vanish(
    definitions: Path, tmp_path: Path
) -> None:
    made = recipe(definitions, tmp_path / "s", "top")
    install, overlay, run = made.steps
    assert isinstance(install, Install)
    assert install.packages == ("a", "new")
    assert isinstance(overlay, Overlay)
    assert isinstance(run, Shell)
    assert run.lines == ("echo x86_64-linux-gnu",)
    assert made.config.entrypoint[2] == "/usr/lib/x86_64-linux-gnu/slurm-wlm"
    # By key: the plain name may still be another branch's build.
    assert made.parent == plan(definitions)[1]["base"].key_reference


def test_files_are_rendered_with_modes_that_git_can_keep(definitions: Path, tmp_path: Path) -> None:
    recipe(definitions, tmp_path / "s", "top")
    assert (tmp_path / "s/etc/release").read_text() == "slurm 24.11\n"
    assert not (tmp_path / "s/etc/release.j2").exists()
    assert (tmp_path / "s/etc/release").stat().st_mode & 0o7777 == 0o644
    assert (tmp_path / "s/etc/run").stat().st_mode & 0o7777 == 0o755


def test_an_unknown_name_in_a_template_names_file_line_and_key(definitions: Path) -> None:
    (definitions / "top" / "image.yaml").write_text("summary: t\nfrom: base\npackages:\n  - '{{ slrum }}'\n")
    with pytest.raises(DefinitionError, match=r"top/image\.yaml:4: packages\.0: 'slrum' is undefined"):
        plan(definitions)


def test_a_broken_template_file_names_its_line(definitions: Path, tmp_path: Path) -> None:
    (definitions / "top/files/etc/release.j2").write_text("a\n{% if %}\n")
    with pytest.raises(DefinitionError, match=r"release\.j2: line 2"):
        recipe(definitions, tmp_path / "s", "top")


def test_the_key_changes_with_each_input_and_names_it(definitions: Path, tmp_path: Path) -> None:
    _, before = plan(definitions)
    _, again = plan(definitions)
    assert before["top"].key.digest == again["top"].key.digest
    # Moved to another folder: the same image.
    moved = tmp_path / "elsewhere"
    shutil.copytree(definitions, moved)
    assert plan(moved)[1]["top"].key.digest == before["top"].key.digest
    (definitions / "top/files/etc/run").write_text("#!/bin/sh\nx\n")
    _, changed = plan(definitions)
    assert changed["top"].key.changed_since(before["top"].key.inputs) == ["images/top/files"]
    assert changed["base"].key.digest == before["base"].key.digest
    (definitions / "base/image.yaml").write_text(BASE.replace("tini", "dumb-init"))
    _, changed_base = plan(definitions)
    assert changed_base["top"].key.changed_since(changed["top"].key.inputs) == ["image base"]
    assert plan(definitions, "debian12")[1]["base"].key.changed_since(changed_base["base"].key.inputs) == [
        "variant"
    ]


def test_a_comment_in_a_definition_builds_nothing_again(definitions: Path) -> None:
    _, before = plan(definitions)
    path = definitions / "top" / "image.yaml"
    path.write_text("# why\n" + path.read_text())
    assert plan(definitions)[1]["top"].key.digest == before["top"].key.digest


def test_compiled_images_come_from_a_throwaway_container(definitions: Path, tmp_path: Path) -> None:
    (definitions / "out").mkdir()
    (definitions / "out/image.yaml").write_text(
        "summary: o\nbuild: {in: base, sources: {spank_jail: /src}, run: [make], output: /out}\n"
    )
    (definitions / "top/image.yaml").write_text(
        "summary: t\nfrom: base\nartifacts: {from: out, files: {/out/x.so: '{{ slurm.plugin_dir }}/'}}\n"
    )
    (step,) = recipe(definitions, tmp_path / "s", "out").steps
    planned = plan(definitions)[1]
    assert step == CompileIn(
        planned["base"].key_reference,
        ((paths.PROJECT / "spank_jail", "/src"),),
        ("make",),
        "/out",
    )
    copy = recipe(definitions, tmp_path / "t", "top").steps[-1]
    assert copy == CopyFrom(
        planned["out"].key_reference, (("/out/x.so", "/usr/lib/x86_64-linux-gnu/slurm-wlm/"),)
    )


def test_every_variant_of_the_project_can_be_planned() -> None:
    for variant in VARIANTS:
        _, planned = plan(paths.PROJECT / "images", variant)
        assert all(name == image.image.name for name, image in planned.items())
