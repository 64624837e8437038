# SPDX-License-Identifier: Apache-2.0
"""Roots and images: create, export, list, remove, bundle; whole or not there at all."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.enroot.conftest import Enroot


def names(enroot: Enroot) -> list[str]:
    """What is in the directory of the containers, hidden or not."""
    return sorted(path.name for path in enroot.data.iterdir())


def listing(image: Path) -> dict[str, tuple[str, str]]:
    """Path to mode and owner."""
    lines = subprocess.run(["unsquashfs", "-ll", image], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 5) for line in lines.splitlines() if "squashfs-root" in line]
    return {row[5].removeprefix("squashfs-root").split(" -> ")[0]: (row[0], row[1]) for row in rows}


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"], ["create"], ["create", "a", "b"], ["create", "--nonsense", "x"], ["create", "-n"],
        ["export"], ["remove"], ["list", "x"], ["start"], ["start", "-e", "1=2", "small"],
        ["start", "--bad", "small"],
        ["version", "x"], ["info", "-x"], ["help", "nonsense"], ["start", ""],
        ["exec"], ["exec", "1"], ["exec", "x", "true"], ["batch"], ["bundle"], [],
    ],
)  # fmt: skip
def test_wrong_usage_exits_1(shared: Enroot, words: list[str]) -> None:
    done = shared(*words)
    assert done.returncode == 1
    assert not words or done.stderr.startswith("[ERROR] ")


def test_what_it_says_of_itself(shared: Enroot) -> None:
    assert shared.out("version").startswith("0.1.0")
    for name in ("batch", "bundle", "create", "exec", "export", "import", "list", "load", "remove", "start"):
        assert name in shared.out("help")
        assert shared.out(name, "--help").startswith(f"Usage: enroot {name} ")
    assert "user namespaces     work" in shared.out("info")


def test_options_come_in_every_form(enroot: Enroot) -> None:
    for i, words in enumerate((["-n", "a0"], ["-na1"], ["--name", "a2"], ["--name=a3", "--"])):
        enroot.out("create", *words, "small.sqsh")
        assert f"a{i}" in enroot.out("list").split()
    enroot.out("remove", "--force", "--", "a0", "a1", "a2", "a3")
    assert enroot.out("list") == "small"


def test_create_takes_the_files_name_and_never_replaces_unasked(enroot: Enroot) -> None:
    done = enroot("create", "small.sqsh")
    assert (done.returncode, "exists already" in done.stderr) == (1, True)
    enroot.sh(": > /mark", "--rw")
    enroot.out("create", "--force", "small.sqsh")
    assert not (enroot.data / "small/mark").exists()
    enroot.sh(": > /mark", "--rw")
    enroot.out("create", "small.sqsh", env={"ENROOT_FORCE_OVERRIDE": "y"})
    assert names(enroot) == ["small"]
    for name in ("a/b", "", ".hidden", ".."):
        assert "is no name of a container" in enroot("create", "--name", name, "small.sqsh").stderr


def test_a_file_that_is_no_image_makes_nothing(enroot: Enroot) -> None:
    enroot.write(enroot.home / "text", "x")
    assert "no squashfs image" in enroot("create", "text").stderr
    whole = (enroot.home / "small.sqsh").read_bytes()
    enroot.write(enroot.home / "cut.sqsh", "").write_bytes(whole[: len(whole) // 2])
    done = enroot("create", "cut.sqsh")
    assert (done.returncode, "[ERROR]" in done.stderr) == (1, True)
    assert names(enroot) == ["small"]


def test_export_gives_back_what_create_took(enroot: Enroot) -> None:
    enroot.sh("echo new > /new; mkdir -p /opt/x; : > /opt/empty", "--rw")
    (enroot.data / "small/dev/leftover").write_text("")
    enroot.out("start", "-m", "/etc/hostname /mnt/place none x-create=file,bind", "small", "true")
    assert (enroot.data / "small/mnt/place").exists()
    enroot.out("export", "--output", "out.sqsh", "small")
    got, first = listing(enroot.home / "out.sqsh"), listing(enroot.home / "small.sqsh")
    assert {owner for _, owner in got.values()} == {"root/root"}
    # The home directory is made where it is missing, for login shells.
    added = {name for name in set(got) - set(first) if not name.startswith("/var/tmp")}
    assert added == {"/new", "/opt", "/opt/x", "/opt/empty"}
    enroot.out("create", "-n", "again", "out.sqsh")
    assert enroot.out("start", "again", "cat", "/new") == "new"


def test_export_never_replaces_unasked(enroot: Enroot) -> None:
    enroot.write(enroot.home / "out.sqsh", "mine")
    done = enroot("export", "-o", "out.sqsh", "small")
    assert (done.returncode, "exists already" in done.stderr) == (1, True)
    assert (enroot.home / "out.sqsh").read_text() == "mine"
    enroot.out("export", "--force", "-o", "out.sqsh", "small")
    assert "/etc/rc" in listing(enroot.home / "out.sqsh")
    assert (
        enroot("export", "-o", "bad.sqsh", "small", env={"ENROOT_SQUASH_OPTIONS": "-comp none"}).returncode
        == 1
    )
    assert not (enroot.home / "bad.sqsh").exists()


def test_remove_asks_and_removes_what_cannot_be_written(enroot: Enroot) -> None:
    enroot.sh("mkdir -p /opt/closed/in; : > /opt/closed/in/file", "--rw")
    (enroot.data / "small/opt/closed/in").chmod(0)
    (enroot.data / "small/opt/closed").chmod(0o500)
    assert enroot("remove", "small", stdin="n\n").returncode == 0
    assert names(enroot) == ["small"]
    assert enroot("remove", "small", stdin="y\n").returncode == 0
    assert names(enroot) == []
    assert enroot("remove", "-f", "small").returncode == 1


def test_a_bundle_is_one_program(enroot: Enroot) -> None:
    enroot.out("bundle", "--desc", "for a test", "--checksum", "-o", "b.run", "small.sqsh")
    bundle = enroot.home / "b.run"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = enroot.command(bundle, *words)
        return subprocess.run(
            command, capture_output=True, text=True, env=enroot.environment(), cwd=enroot.home
        )

    assert run("-i").stdout.startswith("for a test\nimage: squashfs, ")
    assert run("-e", "A=1", "-r", "--", "sh", "-c", "echo $A; id -u").stdout.split() == ["1", "0"]
    assert run("sh", "-c", "exit 3", "-x").returncode == 3
    assert run("-x").returncode == 0
    assert (enroot.home / "b.run.rootfs/etc/rc").is_file()
    with bundle.open("r+b") as file:
        file.seek(-5000, os.SEEK_END)
        file.write(b"\xff" * 64)
    assert "is damaged" in run("true").stderr
    assert enroot("bundle", "-o", "b.run", "small.sqsh").returncode == 1
    enroot.out("bundle", "-f", "-o", "b.run", "small.sqsh")
    assert run("true").returncode == 0


def test_import_says_that_it_is_not_there(shared: Enroot) -> None:
    if Path("/usr/lib/enroot/enroot-image").exists():
        pytest.skip("it is there")
    done = shared("import", "docker://x")
    assert (done.returncode, "It belongs to enroot" in done.stderr) == (1, True)


def test_import_is_another_program(enroot: Enroot) -> None:
    program = enroot.write(
        enroot.home / "lib/enroot-image", '#!/bin/sh\necho "$ENROOT_DATA_PATH" "$@"\n', 0o755
    )
    told = enroot.out("digest", "-a", "x", "docker://y", env={"ENROOT_LIBRARY_PATH": str(program.parent)})
    assert told == f"{enroot.data} digest -a x docker://y"


def test_names_before_files(enroot: Enroot) -> None:
    shutil.copy(enroot.home / "small.sqsh", enroot.home / "small")
    enroot.sh("echo root > /which", "-w")
    assert enroot.out("start", "small", "cat", "/which") == "root"
    assert enroot("start", "./small", "cat", "/which").returncode == 1


def test_a_root_cannot_keep_its_start_waiting(enroot: Enroot) -> None:
    """Fifos where a start reads files: nobody ever writes into them."""
    folder = enroot.data / "small/etc"
    for name in ("environment", "fstab", "passwd", "group", "login.defs", "locale.conf", "rc"):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
        if enroot.account is not None:
            shutil.chown(folder / name, enroot.account)
    done = enroot("start", "small", "true", prefix=("timeout", "50"))
    assert done.returncode == 0, done.stderr
