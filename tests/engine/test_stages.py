# SPDX-License-Identifier: Apache-2.0
"""A recipe becomes a stage of a Containerfile."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from cellblock.engine import apt
from cellblock.engine.recipe import (
    Bootstrap,
    CompileIn,
    CopyFrom,
    ImageConfig,
    Install,
    Overlay,
    Recipe,
    Shell,
    Step,
)
from cellblock.engine.stages import Stage, stages_of
from cellblock.errors import CellblockError


def recipe(*steps: Step, parent: str | None = "parent:1", **config: object) -> Recipe:
    return Recipe(
        image="image",
        references=("image:1",),
        parent=parent,
        steps=steps,
        config=ImageConfig(**config),  # type: ignore[arg-type]
        package_cache=Path("/nonexistent"),
        reproduce="again",
        per_machine=("/etc/key-of-*",),
    )


def stage(made: Recipe, *, inherits_command: bool = False) -> Stage:
    return stages_of(made, lambda name: name.partition(":")[0], inherits_command=inherits_command)[-1]


def keywords(made: Stage) -> list[str]:
    return [instruction.text.split()[0] for instruction in made.all_instructions()]


def test_a_base_is_a_tar_that_the_shown_command_makes() -> None:
    made = stage(recipe(Bootstrap("trixie", "amd64", ("main",), ("deb x y z",), ("tini",)), parent=None))
    assert made.text().startswith("# ---")
    assert "FROM scratch AS image\n" in made.text()
    assert "ADD image/root.tar /\n" in made.text()
    ((name, command),) = made.roots
    assert name in command
    assert "--format=tar" in command
    for word in ("mmdebstrap", "trixie", "'deb x y z'"):
        assert any(line.startswith("#") and word in line for line in made.text().splitlines())


def test_every_run_removes_what_it_left_and_what_is_a_machines_own() -> None:
    made = stage(recipe(Install(("a",)), CopyFrom("other:1", (("/x", "/y"),)), Shell(("true",))))
    runs = [each.text for each in made.instructions if each.text.startswith("RUN")]
    assert len(runs) == 2
    for run in runs:
        for path in (*(f"/{pattern}" for pattern in apt.LEFTOVERS), "/etc/key-of-*", *apt.IDENTITIES):
            assert path in run


def test_steps_in_a_row_that_run_something_are_one_layer() -> None:
    made = stage(recipe(Shell(("echo users",), "make users"), Install(("a", "b")), Shell(("echo last",))))
    assert keywords(made).count("RUN") == 1
    run = next(each for each in made.instructions if each.text.startswith("RUN"))
    assert run.text.index("users") < run.text.index("install") < run.text.index("last")
    assert run.title == "make users, install packages, run"


def test_files_go_to_their_folders_one_copy_a_folder(tmp_path: Path) -> None:
    for name in ("etc/a", "etc/b", "usr/bin/c", "top"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "etc" / "link").symlink_to("/else where")
    made = stage(recipe(Overlay(tmp_path)))
    copies = [" ".join(each.text.split()) for each in made.instructions if each.text.startswith("COPY")]
    assert copies == [
        "COPY image/files/etc/a \\ image/files/etc/b \\ /etc/",
        "COPY image/files/top /",
        "COPY image/files/usr/bin/c /usr/bin/",
    ]
    assert "mkdir -p /empty" in made.text()
    assert "ln -sfT '/else where' /etc/link" in made.text()
    assert dict(made.files)["image/files/etc/b"] == tmp_path / "etc/b"


@pytest.mark.parametrize("name", ["a*", "[", "q?", 'say "x"', "$HOME"])
def test_a_name_that_builders_would_read_otherwise_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    with pytest.raises(CellblockError, match="builders give a meaning") as raised:
        stage(recipe(Overlay(tmp_path)))
    assert "--engine native" in raised.value.hint


def test_names_with_spaces_are_copied_in_the_form_of_a_list(tmp_path: Path) -> None:
    (tmp_path / "two words").write_text("")
    assert 'COPY ["image/files/two words", "/"]' in stage(recipe(Overlay(tmp_path))).text()


def test_what_is_compiled_leaves_a_stage_of_its_own() -> None:
    step = CompileIn("tools:1", ((Path("/somewhere/src"), "/src"),), ("make",), "/out")
    first, last = stages_of(recipe(step, parent=None), lambda name: name[:5], inherits_command=False)
    assert "FROM tools AS image-compile" in first.text()
    assert "COPY image/sources/0-src /src" in first.text()
    assert "COPY --from=image-compile /out /out" in last.text()
    assert keywords(last)[:2] == ["FROM", "COPY"]


def test_an_inherited_command_is_taken_away_when_the_image_has_none() -> None:
    assert keywords(stage(recipe(), inherits_command=True))[-2:] == ["ENTRYPOINT", "CMD"]
    assert "CMD" not in keywords(stage(recipe()))


def test_values_are_safe_from_what_builders_replace() -> None:
    text = stage(recipe(env={"A": 'x "y" $Z \\'}, labels={"l": "plain"})).text()
    assert '    A="x \\"y\\" \\$Z \\\\"' in text
    assert "LABEL l=plain" in text


def test_a_value_of_several_lines_is_refused() -> None:
    with pytest.raises(CellblockError, match="the value of A has several lines"):
        stage(recipe(env={"A": "x\ny"}))


def test_archives_for_building_only_are_there_for_one_run_with_their_keys(tmp_path: Path) -> None:
    (tmp_path / "key.gpg").write_bytes(b"a key")
    source = f"deb [signed-by={tmp_path}/key.gpg] http://mirror.test/cuda ./"
    step = Install(("a",), (), (source,), "Package: *\nPin: release o=x\nPin-Priority: 600\n")
    run = next(each.text for each in stage(recipe(step)).instructions if each.text.startswith("RUN"))
    assert base64.b64encode(b"a key").decode() in run
    assert str(tmp_path) not in run
    assert "'deb [signed-by=/tmp/key-0.gpg] http://mirror.test/cuda ./'" in run
    removal = next(line for line in run.splitlines() if "rm -f /usr/sbin/policy-rc.d" in line)
    assert "/etc/apt/sources.list.d/build-only.list" in removal
    assert "/etc/apt/preferences.d/build-only" in removal


def test_only_what_every_builder_knows_is_used() -> None:
    made = stage(recipe(Install(("a",)), Shell(("cat <<E\nx\nE",)), CopyFrom("o:1", (("/a", "/b"),))))
    assert set(keywords(made)) <= {"FROM", "ARG", "RUN", "COPY", "ADD", "ENV", "LABEL"}
    assert "--mount" not in made.text()
    assert "--chmod" not in made.text()
    assert not [line for line in made.text().splitlines() if line.startswith("RUN <<")]
