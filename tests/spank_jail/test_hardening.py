# SPDX-License-Identifier: Apache-2.0
"""Programs as they are compiled here. Plugins and PAM module: tests/integration/jail/test_hardening.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.spank_jail.hardening import exports, unversioned, weaknesses
from tests.spank_jail.test_c_units import build, make, tools

__all__ = ["build", "tools"]  # fixtures

PROGRAM = "#include <stdio.h>\nint main(int c, char **v) { char b[8]; return sprintf(b, v[0], c) + b[0]; }\n"
LAX = [
    "-no-pie",
    "-fno-stack-protector",
    "-U_FORTIFY_SOURCE",
    "-Wl,-z,execstack,-z,lazy,-z,norelro,-rpath,/x",
]


@pytest.mark.parametrize("program", ["jail-enter", "jail-accounts", "node-supervise"])
def test_programs_are_hardened(build: Path, program: str) -> None:
    made = make(build, "jail-enter", "node")
    assert made.returncode == 0, made.stderr
    assert weaknesses(build / program) == []


@pytest.mark.parametrize("kept", [None, "-fno-stack-protector", "-U_FORTIFY_SOURCE"])
def test_a_program_that_is_not_is_told_so(tools: None, tmp_path: Path, kept: str | None) -> None:
    (tmp_path / "lax.c").write_text(PROGRAM)
    options = LAX if kept is None else [kept]
    command = ["gcc", "-w", "-O2", *options, "-o", tmp_path / "lax", tmp_path / "lax.c"]
    subprocess.run(command, check=True)
    found = " ".join(weaknesses(tmp_path / "lax"))
    expected = {
        "-fno-stack-protector": ["stack is not protected"],
        "-U_FORTIFY_SOURCE": ["not fortified"],
        None: ["address is fixed", "bound late", "search path", "no -z relro", "stack is executable",
               "not protected", "not fortified"],
    }  # fmt: skip
    assert [text for text in expected[kept] if text not in found] == []


def test_what_an_object_exports_is_seen(tools: None, tmp_path: Path) -> None:
    text = "int asked(void); int puts(const char *); int shown(void);\n"
    (tmp_path / "x.c").write_text(text + 'int shown(void) { return asked() + puts("x"); }\n')
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "x.so", tmp_path / "x.c"], check=True)
    assert exports(tmp_path / "x.so") == {"shown"}
    assert unversioned(tmp_path / "x.so") == {"asked"}
