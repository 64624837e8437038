# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at random moments: nothing that looks whole and is not, no mount, no temporary file later.

Each command is killed CELLBLOCK_KILL_ROUNDS times (15), at moments spread over the time that it takes.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.enroot.conftest import Enroot, servers

ROUNDS = int(os.environ.get("CELLBLOCK_KILL_ROUNDS", "15"))


def killed(enroot: Enroot, *words: str, after: Callable[[], None], program: Path | None = None) -> int:
    """Runs it to its end once, then kills it at random moments of that time. Returns how many ended."""
    moments = random.Random(2)
    command = enroot.command(program or enroot.program, *words)
    complete, longest = 0, 0.0
    for i in range(ROUNDS + 1):
        began = time.monotonic()
        started = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=enroot.environment(),
            cwd=enroot.home,
        )
        if i:
            time.sleep(moments.uniform(0, longest))
            started.kill()
        complete += started.wait(60) == 0
        longest = longest or time.monotonic() - began
        after()
    return complete


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if ".enroot-" in path.name]


@pytest.fixture
def whole(image: Path, tmp_path: Path) -> set[str]:
    """What a complete root of the image holds."""
    subprocess.run(
        ["unsquashfs", "-q", "-n", "-d", tmp_path / "root", image], check=True, stdout=subprocess.DEVNULL
    )
    return tree(tmp_path / "root")


def test_create(enroot: Enroot, whole: set[str]) -> None:
    target = enroot.data / "killed"

    def check() -> None:
        if target.exists():
            assert tree(target) == whole
            shutil.rmtree(target)

    assert killed(enroot, "create", "-n", "killed", "small.sqsh", after=check) >= 1
    enroot.out("create", "-n", "after", "small.sqsh")
    assert not hidden(enroot.data)


def test_create_by_force_has_the_old_one_or_the_new(enroot: Enroot, whole: set[str]) -> None:
    def check() -> None:
        assert tree(enroot.data / "old") >= whole

    enroot.out("create", "-n", "old", "small.sqsh")
    assert killed(enroot, "create", "-f", "-n", "old", "small.sqsh", after=check) >= 1
    enroot.out("list")
    assert not hidden(enroot.data)


@pytest.mark.parametrize("force", [False, True])
def test_export(enroot: Enroot, whole: set[str], tmp_path: Path, force: bool) -> None:
    target = enroot.home / "killed.sqsh"
    if force:
        enroot.out("export", "-o", "killed.sqsh", "small")

    def check() -> None:
        assert target.exists() or not force
        if target.exists():
            shutil.rmtree(tmp_path / "again", ignore_errors=True)
            command = ["unsquashfs", "-q", "-n", "-d", tmp_path / "again", target]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            assert tree(tmp_path / "again") >= whole
        if not force:
            target.unlink(missing_ok=True)

    options = ("--force",) if force else ()
    assert killed(enroot, "export", *options, "-o", "killed.sqsh", "small", after=check) >= 1
    enroot.out("export", "--force", "-o", "killed.sqsh", "small")
    assert not hidden(enroot.home)


def test_bundle(enroot: Enroot) -> None:
    target = enroot.home / "killed.run"
    enroot.out("bundle", "--checksum", "-o", "whole.run", "small.sqsh")
    expected = (enroot.home / "whole.run").read_bytes()

    def check() -> None:
        assert target.read_bytes() == expected

    shutil.copy(enroot.home / "whole.run", target)
    shutil.chown(target, enroot.home.owner())
    assert killed(enroot, "bundle", "-f", "--checksum", "-o", "killed.run", "small.sqsh", after=check) >= 1
    enroot.out("bundle", "-f", "--checksum", "-o", "killed.run", "small.sqsh")
    assert not hidden(enroot.home)


def test_a_bundle_that_extracts(enroot: Enroot, whole: set[str]) -> None:
    enroot.out("bundle", "-o", "b.run", "small.sqsh")
    target = enroot.home / "b.run.rootfs"

    def check() -> None:
        if target.exists():
            assert tree(target) == whole
            shutil.rmtree(target)

    assert killed(enroot, "-x", after=check, program=enroot.home / "b.run") >= 1
    subprocess.run(
        enroot.command(enroot.home / "b.run", "-x"), env=enroot.environment(), cwd=enroot.home, check=True
    )
    assert not hidden(enroot.home)


@pytest.mark.parametrize(
    "words",
    [("small",), ("small.sqsh",), ("--pid", "small.sqsh"), ("--pid", "--rw", "--net", "small")],
    ids=" ".join,
)
def test_start(enroot: Enroot, words: tuple[str, ...]) -> None:
    before = Path("/proc/self/mountinfo").read_text().count(str(enroot.base))
    killed(enroot, "start", *words, "true", after=lambda: None)
    deadline = time.monotonic() + 60
    while servers(enroot) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not servers(enroot)
    assert Path("/proc/self/mountinfo").read_text().count(str(enroot.base)) == before
    assert list((enroot.base / "run/enroot").iterdir()) == []
    assert enroot.sh("echo fine") == "fine"
    assert not [path for path in (enroot.data / "small/etc").iterdir() if path.name.startswith(".")]
    assert [path.name for path in (enroot.data / "small").iterdir() if path.name.startswith(".")] == [".lock"]
