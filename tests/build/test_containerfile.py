# SPDX-License-Identifier: Apache-2.0
"""The text of a rendered Containerfile: stages, their order, and what each runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.build.containerfile import RenderRequest, rendered
from cellblock.engine.stages import stages_of
from cellblock.errors import UsageError
from cellblock.events import Events

BASE = "summary: b\nusers: [{name: u, uid: 1, gid: 1}]\n"
TOOLS = "summary: t\nfrom: base\npackages: [make]\n"
OUT = "summary: o\nbuild: {in: tools, sources: {docs: /src}, run: [make], output: /out}\n"
TOP = "summary: s\nfrom: base\nartifacts: {from: out, files: {/out/x: /x}}\ncommand: [x]\n"
CHILD = "summary: c\nfrom: top\n"


@pytest.fixture
def definitions(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    for name, text in {"base": BASE, "tools": TOOLS, "out": OUT, "top": TOP, "child": CHILD}.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "image.yaml").write_text(text)
    shutil.copy(paths.PROJECT / "images" / "variants.yaml", folder)
    return folder


def request(definitions: Path, *images: str) -> RenderRequest:
    return RenderRequest(images, "debian13", ("http://mirror.test/debian",), definitions)


def froms(text: str) -> list[str]:
    return re.findall(r"^FROM (.*)$", text, flags=re.MULTILINE)


def test_a_stage_stands_for_each_image_after_those_it_needs(definitions: Path) -> None:
    with rendered(request(definitions, "child")) as file:
        assert froms(file.text) == [
            "scratch AS base",
            "base AS tools",
            "tools AS out-compile",
            "scratch AS out",
            "base AS top",
            "top AS child",
        ]
        assert "COPY --from=out /x" not in file.text
        assert "COPY --from=out /out/x /x" in file.text


def test_manual_pages_are_unpacked_where_packages_are_installed(definitions: Path) -> None:
    (definitions / "tools" / "image.yaml").write_text(f"{TOOLS}manuals: true\n")
    with rendered(request(definitions, "tools")) as file:
        run = file.text[file.text.index("RUN ") :]
    download = 'apt-get "$@" download $('
    assert run.index('apt-get "$@" install') < run.index(download) < run.index("rm -f /usr/sbin/policy-rc.d")
    assert "--wildcards './usr/share/man/man[0-9]*'" in run
    lines = run.removeprefix("RUN ").partition("\nENV ")[0]
    subprocess.run(["sh", "-n", "-c", lines], check=True)


def test_only_what_is_needed_is_rendered(definitions: Path) -> None:
    with rendered(request(definitions, "tools")) as file:
        assert froms(file.text) == ["scratch AS base", "base AS tools"]
        assert "--target tools" in file.text


def test_a_child_gives_up_the_command_of_its_parent(definitions: Path) -> None:
    with rendered(request(definitions, "child")) as file:
        assert 'CMD ["x"]' in file.stages[-2].text()
        assert "CMD []" in file.stages[-1].text()


def test_the_docker_engine_builds_the_very_same_stages(definitions: Path) -> None:
    """But for the names of other images: stages in the file, images by their keys in the engine."""
    with rendered(request(definitions)) as file:
        names = {f"{each.references[0]}.key-1": each.image for each in file.recipes}
        called = {name: reference for reference, name in names.items()}
        alone = [
            stage.text()
            for each in file.recipes
            for stage in stages_of(each, called.__getitem__, inherits_command=each.image == "child")
        ]
        text = "\n".join(alone)
        for reference, name in names.items():
            text = text.replace(f"FROM {reference} ", f"FROM {name} ").replace(
                f"--from={reference} ", f"--from={name} "
            )
        assert file.text.endswith(text)


def test_no_image_comes_from_a_registry(definitions: Path) -> None:
    with rendered(request(definitions)) as file:
        known = {"scratch", *(stage.name for stage in file.stages)}
        assert {line.split()[0] for line in froms(file.text)} <= known


def test_every_image_of_the_project_can_be_rendered_for_every_release() -> None:
    for variant in ("debian12", "debian14", "ubuntu24.04-cuda"):
        with rendered(RenderRequest((), variant, ("http://mirror.test/x",))) as file:
            assert {"base", "worker", "jail", "plugins-compile"} <= {stage.name for stage in file.stages}


def test_what_measures_gpus_is_compiled_where_there_is_cuda() -> None:
    """in the image that has CUDA's compiler; a job of the cluster's looks for it there"""
    compiled = "nvcc -O2 -Xlinker -s -o /usr/libexec/cellblock/gpu-speed /usr/share/cellblock/gpu_speed.cu"
    for variant, cuda in (("debian13-cuda", True), ("ubuntu24.04-cuda", True), ("debian13", False)):
        with rendered(RenderRequest(("jail-devel",), variant, ("http://mirror.test/x",))) as file:
            assert (compiled in file.text) is cuda
            assert "COPY --from=plugins /out/gpu_speed.cu /usr/share/cellblock/" in file.text
    table = (
        paths.PROJECT / "images/controller/files/usr/lib/cellblock/health-active/checks.conf"
    ).read_text()
    assert " program=/usr/libexec/cellblock/gpu-speed\n" in table


def test_a_folder_with_something_else_in_it_is_left_alone(definitions: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("")
    with rendered(request(definitions, "base")) as file, pytest.raises(UsageError, match="something else"):
        file.write(tmp_path / "mine", Events())
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]
