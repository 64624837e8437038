# SPDX-License-Identifier: Apache-2.0
"""From image.yaml to a rendered image, its key and its recipe."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

import pytest

from cellblock import paths
from cellblock.build import build_images
from cellblock.build.containerfile import RenderRequest
from cellblock.build.containerfile import rendered as containerfile
from cellblock.build.image_plan import recipe_keys
from cellblock.build.mirrors import Archive
from cellblock.build.prepare import prepare
from cellblock.build.rendering import RenderedImage, lock_requests, refuse_unavailable, render_images
from cellblock.build.request import BuildRequest
from cellblock.build.steps import recipe_of
from cellblock.cache_key import Key
from cellblock.definition import load_images
from cellblock.engine.recipe import Bootstrap, CompileIn, CopyFrom, Install, Overlay, Recipe, Shell
from cellblock.errors import DefinitionError, UsageError
from cellblock.events import Events
from cellblock.graph import build_order
from cellblock.template import Renderer
from cellblock.variants import load_variants
from tests.packages.small_archive import SmallArchive

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


def rendered(folder: Path, variant: str = "debian13") -> dict[str, RenderedImage]:
    images = load_images(folder)
    return render_images(VARIANTS[variant], build_order(images, images))


def keys(folder: Path, variant: str = "debian13") -> dict[str, Key]:
    return recipe_keys(rendered(folder, variant), Archive(()))


def recipe(folder: Path, staging: Path, image: str) -> Recipe:
    staging.mkdir(exist_ok=True)
    return recipe_of(
        rendered(folder)[image], Archive(()), staging, references=("it:1",), made_from={}, reproduce="again"
    )


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
    assert made.parent == "base"


def test_files_are_rendered_with_modes_that_git_can_keep(definitions: Path, tmp_path: Path) -> None:
    recipe(definitions, tmp_path / "s", "top")
    assert (tmp_path / "s/etc/release").read_text() == "slurm 24.11\n"
    assert not (tmp_path / "s/etc/release.j2").exists()
    assert (tmp_path / "s/etc/release").stat().st_mode & 0o7777 == 0o644
    assert (tmp_path / "s/etc/run").stat().st_mode & 0o7777 == 0o755


def test_an_unknown_name_in_a_template_names_file_line_and_key(definitions: Path) -> None:
    (definitions / "top" / "image.yaml").write_text("summary: t\nfrom: base\npackages:\n  - '{{ slrum }}'\n")
    with pytest.raises(DefinitionError, match=r"top/image\.yaml:4: packages\.0: 'slrum' is undefined"):
        rendered(definitions)


def test_a_broken_template_file_names_its_line(definitions: Path, tmp_path: Path) -> None:
    (definitions / "top/files/etc/release.j2").write_text("a\n{% if %}\n")
    with pytest.raises(DefinitionError, match=r"release\.j2: line 2"):
        recipe(definitions, tmp_path / "s", "top")


def test_the_key_changes_with_each_input_and_names_it(definitions: Path, tmp_path: Path) -> None:
    before = keys(definitions)
    again = keys(definitions)
    assert before["top"].digest == again["top"].digest
    # Moved to another folder: the same image.
    moved = tmp_path / "elsewhere"
    shutil.copytree(definitions, moved)
    assert keys(moved)["top"].digest == before["top"].digest
    (definitions / "top/files/etc/run").write_text("#!/bin/sh\nx\n")
    changed = keys(definitions)
    assert changed["top"].changed_since(before["top"].inputs) == ["images/top/files"]
    assert changed["base"].digest == before["base"].digest
    (definitions / "base/image.yaml").write_text(BASE.replace("tini", "dumb-init"))
    changed_base = keys(definitions)
    assert changed_base["top"].changed_since(changed["top"].inputs) == ["image base"]
    assert keys(definitions, "debian12")["base"].changed_since(changed_base["base"].inputs) == ["variant"]


def test_a_comment_in_a_definition_builds_nothing_again(definitions: Path) -> None:
    before = keys(definitions)
    path = definitions / "top" / "image.yaml"
    path.write_text("# why\n" + path.read_text())
    assert keys(definitions)["top"].digest == before["top"].digest


def test_compiled_images_come_from_a_throwaway_container(definitions: Path, tmp_path: Path) -> None:
    (definitions / "out").mkdir()
    (definitions / "out/image.yaml").write_text(
        "summary: o\nbuild: {in: base, sources: {spank_jail: /src}, run: [make], output: /out}\n"
    )
    (definitions / "top/image.yaml").write_text(
        "summary: t\nfrom: base\nartifacts: {from: out, files: {/out/x.so: '{{ slurm.plugin_dir }}/'}}\n"
    )
    (step,) = recipe(definitions, tmp_path / "s", "out").steps
    assert step == CompileIn(
        "base",
        ((paths.PROJECT / "spank_jail", "/src"),),
        ("make",),
        "/out",
    )
    copy = recipe(definitions, tmp_path / "t", "top").steps[-1]
    assert copy == CopyFrom("out", (("/out/x.so", "/usr/lib/x86_64-linux-gnu/slurm-wlm/"),))


def test_every_variant_of_the_project_can_be_rendered() -> None:
    for variant in VARIANTS:
        images = rendered(paths.PROJECT / "images", variant)
        assert all(name == image.name for name, image in images.items())


def test_the_resolver_is_asked_for_rendered_packages_where_they_stand(definitions: Path) -> None:
    requests = lock_requests(rendered(definitions))
    assert requests["top"].parent == "base"
    assert requests["top"].packages == ("a", "new")
    assert requests["top"].where.endswith("top/image.yaml:3")


def test_a_plan_renders_each_definition_once(
    definitions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELLBLOCK_CACHE", str(tmp_path / "cache"))
    shutil.copy(paths.PROJECT / "images" / "variants.yaml", definitions)
    small = SmallArchive(tmp_path / "archive")
    for name, fields in {
        "base-files": {"Essential": "yes"},
        "apt": {},
        "tini": {},
        "a": {},
        "new": {},
    }.items():
        small.add(name, **fields)
    small.publish()
    seen: list[str] = []
    text = Renderer.text

    def noting(self: Renderer, template: str, where: str) -> str:
        seen.append(where)
        return text(self, template, where)

    monkeypatch.setattr(Renderer, "text", noting)
    mirror = f"deb [trusted=yes] file://{small.folder} trixie main"
    prepare(BuildRequest((), "debian13", (mirror,), definitions=definitions), Events())
    assert any(where.endswith("release.j2") for where in seen)
    assert any(where.endswith("run.0") for where in seen)
    assert sorted(seen) == sorted(set(seen))


def test_what_a_variant_cannot_have_is_refused_and_the_hint_names_one_that_can(
    tmp_path: Path,
) -> None:
    text = "summary: t\nrefused: \"{{ 'too old' if slurm.release == '22.05' }}\"\n"
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "image.yaml").write_text(text)
    images = list(load_images(tmp_path).values())
    two = {name: VARIANTS[name] for name in ("debian12", "debian13")}
    refuse_unavailable(two, VARIANTS["debian13"], images)
    with pytest.raises(
        UsageError, match=r"image\.yaml:2: refused: image top cannot .* debian12: too old"
    ) as told:
        refuse_unavailable(two, VARIANTS["debian12"], images)
    assert told.value.hint == "build it for another variant: `python3 build.py build top --variant debian13`"


@pytest.mark.parametrize("engine", ["native", "docker"])
def test_a_refused_image_is_refused_before_anything_is_built(engine: Literal["native", "docker"]) -> None:
    with pytest.raises(UsageError, match="image jail-init cannot be built for debian12"):
        build_images(BuildRequest(("jail-init",), "debian12", engine=engine), Events())


def test_a_refused_image_has_no_containerfile() -> None:
    asked = RenderRequest(("jail-init",), "ubuntu22.04")
    with pytest.raises(UsageError, match="jail-init cannot be built"), containerfile(asked):
        pass
