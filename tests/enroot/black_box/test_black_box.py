# SPDX-License-Identifier: Apache-2.0
"""The tables of this folder: what users of enroot type, and what they expect."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

from tests.enroot.black_box.case import Case, read
from tests.enroot.conftest import Enroot, fresh, small_tree
from tests.enroot.importing.layouts import write_layout

FOLDER = Path(__file__).parent
TABLES = sorted(path.stem for path in FOLDER.glob("*.cases"))
AS_ROOT = TABLES if os.environ.get("CELLBLOCK_BLACK_BOX") == "all" else ["starts"]
"""Of whom most does not depend; CELLBLOCK_BLACK_BOX=all runs all as root too."""

APP: dict[str, Any] = {
    "Env": ["A=1", 'B=x y "z" ${HOME}', "EMPTY=", "a.b=dot", "PATH=/bin:/app"],
    "Entrypoint": ["sh", "-c", 'echo "entry $PWD" "$@"', "sh0"],
    "Cmd": ["from", "cmd"],
    "WorkingDir": "/work/deep",
    "Volumes": {"/data": {}, "/with space": {}},
    "Labels": {"name": "app", "text": "two\nlines"},
    "User": "1000:1000",
    "ExposedPorts": {"80/tcp": {}},
    "Healthcheck": {"Test": ["CMD", "true"]},
}
"""The configuration of $APP."""


def cases(tables: Sequence[str]) -> list[ParameterSet]:
    return [
        pytest.param(case, id=f"{table}: {case.name}")
        for table in tables
        for case in read(FOLDER / f"{table}.cases")
    ]


def install(build: Path, importer_build: Path, account: str | None, image: Path) -> Iterator[Enroot]:
    for enroot in fresh(build, account, image):
        (enroot.base / "bin").mkdir()
        shutil.copy(enroot.program, enroot.base / "bin/enroot")
        shutil.copy(importer_build / "enroot-image", enroot.base / "bin")
        for name, config in (("app", APP), ("plain", {})):
            small_tree(enroot.base / "tree")
            write_layout(enroot.base / name, [tree_tar(enroot.base / "tree")], config=config, tag="v1")
            shutil.rmtree(enroot.base / "tree")
        yield enroot


@pytest.fixture(scope="module")
def of_user(build: Path, importer_build: Path, account: str | None, image: Path) -> Iterator[Enroot]:
    yield from install(build, importer_build, account, image)


@pytest.fixture(scope="module")
def of_root(build: Path, importer_build: Path, image: Path) -> Iterator[Enroot]:
    if os.geteuid():
        pytest.skip("needs root")
    yield from install(build, importer_build, None, image)


def tree_tar(folder: Path) -> bytes:
    return subprocess.run(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE, check=True).stdout


@pytest.mark.parametrize("case", cases(TABLES))
def test_a_user(of_user: Enroot, case: Case) -> None:
    check(of_user, case)


@pytest.mark.parametrize("case", cases(AS_ROOT))
def test_root(of_root: Enroot, case: Case) -> None:
    check(of_root, case)


def check(installed: Enroot, case: Case) -> None:
    home = installed.base / "home/case"
    home.mkdir()
    if installed.account:
        shutil.chown(home, installed.account, installed.account)
    variables = {
        **installed.environment(),
        "PATH": f"{installed.base}/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "ENROOT_DATA_PATH": str(installed.data),
        "ENROOT_RUNTIME_PATH": str(installed.base / "run/enroot"),
        "ENROOT_LIBRARY_PATH": str(installed.base / "bin"),
        "ENROOT_SYSCONF_PATH": str(home / ".etc"),
        "SYSCONF": str(home / ".etc"),
        "APP": str(installed.base / "app"),
        "PLAIN": str(installed.base / "plain"),
        "IMAGE": str(installed.home / "small.sqsh"),
    }
    command = installed.command("bash", "-c", f"cd; {case.script}")
    try:
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
    finally:
        shutil.rmtree(home)
        left = (*installed.data.glob("[!s]*"), *installed.data.glob("small/mnt/*"))
        subprocess.run(["rm", "-rf", *left], check=True)
    user = installed.account or os.environ.get("USER", "root")
    said = (done.returncode, done.stdout.strip(), done.stderr)
    assert done.returncode == case.status, said
    if case.pattern:
        assert re.search(case.pattern, done.stdout.strip(), re.MULTILINE), said
    else:
        wanted = case.out.replace("$HOME", str(home)).replace("$USER", user)
        assert done.stdout.strip() == wanted, said
    assert re.search(case.err, done.stderr, re.MULTILINE) if case.err else not done.stderr, said
