# SPDX-License-Identifier: Apache-2.0
"""Who unpacks what, and what dpkg is left to do."""

from __future__ import annotations

import io
import os
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from cellblock.build import install_commands
from cellblock.build.unpack_packages import Opened, feed, finish, frames, in_order, plan_unpacking
from cellblock.errors import CellblockError
from cellblock.lock.model import LockedPackage
from cellblock.packages.unpacked_deb import Folder, UnpackedDeb

PLAIN = UnpackedDeb("form", "Package: x\nVersion: 1\n", (), (), (), (), (), 0, (), (), "")


def locked(name: str, *depends: str) -> LockedPackage:
    return LockedPackage(name, "1", "amd64", "0" * 64, 1, 1, "f", 0, "o", False, ("x",), depends)


def opened(name: str, *paths: str, depends: tuple[str, ...] = (), **fields: object) -> Opened:
    deb = replace(PLAIN, control=f"Package: {name}\nVersion: 1\n", paths=paths, **fields)  # type: ignore[arg-type]
    return Opened(locked(name, *depends), deb, Path(f"/debs/{name}.files"))


def names(packages: tuple[Opened, ...]) -> list[str]:
    return [each.package.name for each in packages]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A root with one package, `there`, that has /usr/bin/tool."""
    info = tmp_path / "tree/var/lib/dpkg/info"
    info.mkdir(parents=True)
    (info / "there.list").write_text("/.\n/usr\n/usr/bin\n/usr/bin/tool\n")
    (info.parent / "status").write_text("Package: there\nStatus: install ok installed\n\n")
    (tmp_path / "tree/usr/bin").mkdir(parents=True)
    return tmp_path / "tree"


def test_each_package_comes_after_what_it_needs() -> None:
    packages = {each.name: each for each in (locked("a", "b | c"), locked("b"), locked("z"))}
    assert in_order(["a", "b", "elsewhere", "z"], packages) == ["b", "a", "z"]


def test_packages_that_need_each_other_come_in_some_order_each_once() -> None:
    circle = {"a": locked("a", "b"), "b": locked("b", "a")}
    assert sorted(in_order(["a", "b"], circle)) == ["a", "b"]


def test_a_plain_package_is_laid_down_and_recorded_as_unpacked(tree: Path) -> None:
    plan = plan_unpacking([opened("new", "/usr/bin/new")], [tree])
    assert names(plan.laid) == ["new"]
    assert plan.status.decode() == (
        "Package: there\nStatus: install ok installed\n\n"
        "Package: new\nStatus: install ok unpacked\nVersion: 1\n"
    )


def test_what_is_not_plain_is_for_dpkg(tree: Path) -> None:
    (tree / "var/lib/dpkg/diversions").write_text("/usr/bin/mine\n/usr/bin/mine.old\nthere\n")
    (tree / "var/lib/dpkg/statoverride").write_text("root adm 2755 /usr/bin/special\n")
    (tree / "etc").mkdir()
    (tree / "etc/made-by-a-script").touch()
    packages = [
        opened("script", by_dpkg="it has a script"),
        opened("overwrites", "/usr/bin/tool"),
        opened("diverted", "/usr/bin/mine"),
        opened("overridden", "/usr/bin/special"),
        opened("conffile", "/etc/made-by-a-script", conffiles=("/etc/made-by-a-script",)),
        opened("one", "/usr/bin/same"),
        opened("other", "/usr/bin/same"),
        opened("plain", "/usr/bin/plain"),
    ]
    plan = plan_unpacking(packages, [tree])
    assert names(plan.laid) == ["plain"]
    assert names(plan.by_dpkg) == [each.package.name for each in packages[:-1]]
    assert b"plain" in plan.status
    assert b"script" not in plan.status


def test_two_names_of_one_file_are_one_where_lib_is_a_link(tree: Path, tmp_path: Path) -> None:
    (tree / "bin").symlink_to("usr/bin")
    upper = tmp_path / "upper"
    upper.mkdir()
    plan = plan_unpacking([opened("old", "/bin/tool"), opened("fine", "/bin/fine")], [tree, upper])
    assert names(plan.by_dpkg) == ["old"]
    assert names(plan.laid) == ["fine"]


def test_only_folders_that_are_not_there_are_made_with_the_modes_of_the_first(tree: Path) -> None:
    first = (Folder("/usr", 0o700, 0, 0, 1), Folder("/usr/new", 0o750, 0, 4, 1))
    second = (Folder("/usr/new", 0o755, 0, 0, 2),)
    plan = plan_unpacking([opened("a", folders=first), opened("b", folders=second)], [tree])
    assert plan.folders == (Folder("/usr/new", 0o750, 0, 4, 1),)


def test_triggers_are_activated_by_name_and_by_path(tree: Path) -> None:
    (tree / "var/lib/dpkg/triggers").mkdir()
    (tree / "var/lib/dpkg/triggers/File").write_text("/usr/share/fonts there/noawait\n/usr/sha there\n")
    package = opened("font", "/usr/share/fonts/a", activates=("ldconfig",))
    assert plan_unpacking([package], [tree]).triggers == ("/usr/share/fonts", "ldconfig")


def test_dpkg_unpacks_what_is_its_own_and_configures_all(tree: Path) -> None:
    plan = plan_unpacking(
        [opened("plain"), opened("own", by_dpkg="script"), opened("more", by_dpkg="s")], [tree]
    )
    commands = [command.split() for command in finish(plan, "/debs").split(" && ")]
    assert commands[0][-2:] == ["/debs/own_1_amd64.deb", "/debs/more_1_amd64.deb"]
    assert "--unpack" in commands[0]
    assert commands[-1][-2:] == ["--configure", "--pending"]


def test_what_a_script_before_unpacking_needs_is_configured_before_it(tree: Path) -> None:
    packages = [
        opened("libc", by_dpkg="s"),
        opened("adduser", by_dpkg="s", depends=("libc",)),
        opened("plain", depends=("adduser",)),
        opened("munge", by_dpkg="s", pre_depends=("adduser", "not-in-this-layer")),
    ]
    commands = finish(plan_unpacking(packages, [tree]), "/d").split(" && ")
    assert commands[0].endswith("--unpack /d/libc_1_amd64.deb /d/adduser_1_amd64.deb")
    assert commands[1].endswith("--configure libc adduser")
    assert commands[2].endswith("--unpack /d/munge_1_amd64.deb")
    assert len(commands) == 4


def test_what_is_fed_is_one_tar(tree: Path, tmp_path: Path) -> None:
    files = tmp_path / "a.files"
    entry = tarfile.TarInfo("./usr/new/a")
    entry.size = 3
    body = entry.tobuf(tarfile.GNU_FORMAT) + b"abc" + b"\0" * 509
    files.write_bytes(zstandard.compress(body))
    package = replace(opened("a", "/usr/new/a", folders=(Folder("/usr/new", 0o750, 7, 8, 9),)), files=files)
    out = io.BytesIO()
    plan = plan_unpacking([package], [tree])
    feed(plan.laid, plan, out)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as tar:
        assert tar.getnames() == ["./usr/new", "./usr/new/a", "./var/lib/dpkg/status"]
        folder = tar.getmember("./usr/new")
        assert (folder.mode, folder.uid, folder.gid, folder.mtime) == (0o750, 7, 8, 9)
    files.write_bytes(files.read_bytes()[:-3] + b"xyz")
    with pytest.raises(CellblockError, match="damaged, what the package store keeps of a"):
        feed(plan.laid, plan, io.BytesIO())


def test_a_package_that_a_script_touched_is_no_frame(tmp_path: Path) -> None:
    for name in ("same", "written", "moded", "gone", "late"):
        (tmp_path / name).write_text(name)
    time.sleep(0.02)
    mark = time.time_ns()
    time.sleep(0.02)
    was = (tmp_path / "written").stat()
    (tmp_path / "written").write_text("changed")
    os.utime(tmp_path / "written", ns=(was.st_atime_ns, was.st_mtime_ns))
    (tmp_path / "moded").chmod(0o4755)
    (tmp_path / "gone").unlink()
    packages = [opened(name, f"/{name}") for name in ("same", "written", "moded", "gone")]
    packages.append(opened("late", "/late", newest=11))
    found = frames(packages, tmp_path, mark, epoch=10)
    assert [frame.names for frame in found] == [frozenset({b"same"})]


def test_a_file_below_a_link_is_no_entry_of_a_layer(tmp_path: Path) -> None:
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/x").touch()
    (tmp_path / "lib").symlink_to("usr/lib")
    assert not frames([opened("old", "/lib/x")], tmp_path, time.time_ns(), 10)
    assert frames([opened("new", "/usr/lib/x")], tmp_path, time.time_ns(), 10)


def test_a_new_root_whose_links_nobody_brings_gets_them() -> None:
    old = [opened("base-files", "/etc/issue"), opened("libc6", "/lib/libc.so")]
    assert install_commands.merged_folders(old) == ("bin", "lib", "lib64", "sbin")
    links = ("/bin", "/lib", "/lib64", "/sbin")
    assert install_commands.merged_folders([opened("base-files", *links, links=links)]) == ()
    assert install_commands.merged_folders([opened("base-files", *links[:2], links=links[:2])]) is None


def test_a_way_through_a_link_is_for_mmdebstrap() -> None:
    packages = [opened("a", "/usr/share/x", links=("/usr/share/x",)), opened("b", "/usr/share/x/file")]
    assert install_commands.merged_folders(packages) is None
