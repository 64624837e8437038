# SPDX-License-Identifier: Apache-2.0
"""Objects of unchanged sources are found again: by all that shapes them, whichever release of Slurm."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cellblock.build.kept_objects import KeptObjects
from cellblock.build.layer_graph import Node
from cellblock.cache_key import Key
from cellblock.engine.recipe import CompileIn
from cellblock.lock.model import LockedPackage

MAKEFILE = """\
BUILD = /none
$(BUILD)/program: $(addprefix $(BUILD)/objects/,a/one.o a/two.o b/plugin.o)
\tld -r -o $@ $^
$(BUILD)/objects/%.o: ../%.c
\t@mkdir -p $(@D)
\tgcc -iquote .. -I ../include -c -o $@ $<
"""
SOURCES = {
    "a/Makefile": MAKEFILE,
    "a/one.c": '#include "one.h"\nint one(void) { return ONE; }\n',
    "a/one.h": "#define ONE 1\n",
    "a/two.c": "int two(void) { return 2; }\n",
    "b/plugin.c": '#include <slurm/slurm.h>\n#include "a/one.h"\nint plugin(void) { return ONE; }\n',
    "include/slurm/slurm.h": "",
}


def package(name: str, version: str) -> LockedPackage:
    return LockedPackage(
        name=name,
        version=version,
        architecture="amd64",
        sha256=f"{name}{version}",
        size=1,
        installed_size=1,
        filename="x",
        archive=0,
        origin="x",
        security=False,
        depends=(),
        images=(),
    )


def toolchain(gcc: str = "14", slurm: str = "25.05") -> tuple[Node, ...]:
    packages = (package("gcc", gcc), package("libslurm-dev", slurm))
    return (Node("shared", "toolchain", Key({}), None, ("toolchain",), packages=packages),)


class Workshop:
    """A folder in which sources are compiled, with what earlier ones have kept."""

    def __init__(self, base: Path, tools: tuple[Node, ...] = (), **changed: str) -> None:
        self.upper = base / f"upper-{len(list(base.iterdir()))}"
        for name, text in {**SOURCES, **changed}.items():
            path = self.upper / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        folders = tuple((Path("/none"), f"/src/{name}") for name in ("a", "b"))
        step = CompileIn("toolchain", folders, ("make",), "/out", "/src/build/objects")
        self.kept = KeptObjects(base / "kept", step, self.upper, tools or toolchain())

    def compile(self) -> list[str]:
        """The sources that were compiled, of those the objects of which were not put back."""
        self.kept.put_back()
        command = ["make", "-C", self.upper / "src/a", f"BUILD={self.upper}/src/build"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        self.kept.keep()
        return sorted(word.removeprefix("../") for word in said.split() if word.endswith(".c"))


@pytest.fixture(autouse=True)
def compiler() -> None:
    for program in ("gcc", "make", "ld"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")


ALL = ["a/one.c", "a/two.c", "b/plugin.c"]


def test_a_change_compiles_what_it_reaches(tmp_path: Path) -> None:
    assert Workshop(tmp_path).compile() == ALL
    assert Workshop(tmp_path).compile() == []
    changed = {"a/two.c": "int two(void) { return 22; }\n"}
    assert Workshop(tmp_path, **changed).compile() == ["a/two.c"]
    assert Workshop(tmp_path, **{"a/one.h": "#define ONE 11\n"}).compile() == ["a/one.c", "b/plugin.c"]
    assert Workshop(tmp_path).compile() == []


def test_a_folder_that_is_compiled_in_one_go_is_kept_whole(tmp_path: Path) -> None:
    together = """\
BUILD = /none
$(BUILD)/program: $(BUILD)/objects/a.o $(BUILD)/objects/b.o
\tld -r -o $@ $^
$(BUILD)/objects/a.o: ../a/one.c ../a/one.h ../a/two.c
$(BUILD)/objects/b.o: ../b/plugin.c ../a/one.h
$(BUILD)/objects/%.o:
\t@mkdir -p $(@D)
\tprintf '#include "%s"\\n' $(patsubst ../%,%,$(filter %.c,$^)) | gcc -iquote .. -I ../include -x c -c -o $@ -
"""
    makefile = {"a/Makefile": together}
    assert Workshop(tmp_path, **makefile).compile() == ALL
    assert Workshop(tmp_path, **makefile).compile() == []
    changed = {"a/two.c": "int two(void) { return 22; }\n", **makefile}
    assert Workshop(tmp_path, **changed).compile() == ["a/one.c", "a/two.c"]
    assert Workshop(tmp_path, toolchain(slurm="25.11"), **makefile).compile() == ["b/plugin.c"]
    added = {"a/three.c": "int three(void) { return 3; }\n", **makefile}
    assert "a/one.c" in Workshop(tmp_path, **added).compile()


def test_what_was_put_back_is_what_was_compiled(tmp_path: Path) -> None:
    first, second = Workshop(tmp_path), None
    first.compile()
    second = Workshop(tmp_path)
    second.compile()
    for name in ("a/one.o", "b/plugin.o"):
        one, other = (each.upper / "src/build/objects" / name for each in (first, second))
        assert one.read_bytes() == other.read_bytes()


def test_another_release_of_slurm_compiles_what_includes_its_headers(tmp_path: Path) -> None:
    Workshop(tmp_path).compile()
    assert Workshop(tmp_path, toolchain(slurm="25.11")).compile() == ["b/plugin.c"]
    assert Workshop(tmp_path).compile() == []


def test_another_compiler_or_c_library_shares_nothing(tmp_path: Path) -> None:
    Workshop(tmp_path).compile()
    assert Workshop(tmp_path, toolchain(gcc="12")).compile() == ALL


def test_other_flags_share_nothing(tmp_path: Path) -> None:
    Workshop(tmp_path).compile()
    assert Workshop(tmp_path, **{"a/Makefile": MAKEFILE.replace("-c ", "-O2 -c ")}).compile() == ALL


def test_what_a_crash_left_half_written_is_compiled_again(tmp_path: Path) -> None:
    Workshop(tmp_path).compile()
    for path in (tmp_path / "kept").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert Workshop(tmp_path).compile() == ALL
    assert Workshop(tmp_path).compile() == []


def test_what_was_not_used_for_long_goes(tmp_path: Path) -> None:
    Workshop(tmp_path).compile()
    old = sorted((tmp_path / "kept").iterdir())[0]
    subprocess.run(["touch", "-d", "40 days ago", old], check=True)
    Workshop(tmp_path, toolchain(gcc="12")).compile()
    assert not old.exists()
    assert len(list((tmp_path / "kept").iterdir())) == 5


def test_a_step_that_names_no_folder_keeps_nothing(tmp_path: Path) -> None:
    step = CompileIn("toolchain", ((Path("/none"), "/src/a"),), ("make",), "/out")
    kept = KeptObjects(tmp_path / "kept", step, Workshop(tmp_path).upper, toolchain())
    assert kept.put_back() == 0
    kept.keep()
    assert list((tmp_path / "kept").iterdir()) == []


def test_what_another_build_removes_meanwhile_is_left_out(tmp_path: Path) -> None:
    """As a link that leads nowhere is listed, and cannot be looked at."""
    workshop = Workshop(tmp_path)
    workshop.compile()
    workshop.kept.folder.mkdir(parents=True, exist_ok=True)
    (workshop.kept.folder / "gone").symlink_to(tmp_path / "nowhere")
    workshop.kept.keep()
    assert Workshop(tmp_path).compile() == []
