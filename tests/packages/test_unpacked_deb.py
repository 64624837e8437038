# SPDX-License-Identifier: Apache-2.0
"""Debs taken apart, from real ones that dpkg-deb makes."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import zstandard

from cellblock.debian.deb_file import DAMAGE
from cellblock.packages.unpacked_deb import Unpacker

DOCS = ("path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright")


@dataclass
class Deb:
    """What a deb is made of: files by path, and control files by name."""

    files: dict[str, str] = field(default_factory=lambda: {"usr/bin/tool": "#!/bin/sh\n"})
    control: dict[str, str] = field(default_factory=lambda: {"md5sums": "0  usr/bin/tool\n"})
    fields: str = ""
    compression: str = "xz"


Make = Callable[[Deb], Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(deb: Deb) -> Path:
        tree = tmp_path / "tree"
        for name, text in deb.files.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
        (tree / "DEBIAN").mkdir(parents=True)
        control = (
            "Package: tool\nVersion: 1\nArchitecture: amd64\nMaintainer: n <n@test>\nDescription: a test\n"
        )
        (tree / "DEBIAN" / "control").write_text(control + deb.fields)
        for name, text in deb.control.items():
            (tree / "DEBIAN" / name).write_text(text)
            (tree / "DEBIAN" / name).chmod(0o755 if name.endswith("inst") else 0o644)
        path = tmp_path / "tool.deb"
        argv = ["dpkg-deb", "--root-owner-group", f"-Z{deb.compression}", "--build", str(tree), str(path)]
        subprocess.run(argv, check=True, capture_output=True)
        return path

    return made


def entries(deb: Path) -> dict[str, bytes]:
    data = zstandard.ZstdDecompressor().stream_reader(deb.with_suffix(".files").read_bytes()).read()
    with tarfile.open(fileobj=io.BytesIO(data + b"\0" * 1024)) as tar:
        return {each.name: (file.read() if (file := tar.extractfile(each)) else b"") for each in tar}


@pytest.mark.parametrize("compression", ["xz", "gzip", "zstd", "none"])
def test_files_and_records_of_a_package_are_entries_of_a_tar(make: Make, compression: str) -> None:
    deb = make(Deb(compression=compression, control={"md5sums": "s\n", "postinst": "#!/bin/sh\n"}))
    opened = Unpacker(()).unpack(deb)
    assert opened.by_dpkg == ""
    assert opened.paths == ("/usr/bin/tool",)
    assert [folder.path for folder in opened.folders] == ["/usr", "/usr/bin"]
    found = entries(deb)
    assert found["./usr/bin/tool"] == b"#!/bin/sh\n"
    assert found["./var/lib/dpkg/info/tool.list"] == b"/.\n/usr\n/usr/bin\n/usr/bin/tool\n"
    assert found["./var/lib/dpkg/info/tool.postinst"] == b"#!/bin/sh\n"
    assert set(found) == {f".{path}" for path in (*opened.paths, *opened.info)}


def test_what_images_leave_out_is_left_out_and_listed_all_the_same(make: Make) -> None:
    files = {f"usr/share/doc/tool/{name}": name for name in ("README", "copyright")}
    deb = make(Deb({**files, "usr/share/documents": "d"}))
    opened = Unpacker(DOCS).unpack(deb)
    assert opened.paths == ("/usr/share/doc/tool/copyright", "/usr/share/documents")
    assert "/usr/share/doc/tool" in [folder.path for folder in opened.folders]
    assert b"/usr/share/doc/tool/README\n" in entries(deb)["./var/lib/dpkg/info/tool.list"]


def test_the_records_of_a_package_for_several_architectures_carry_one(make: Make) -> None:
    opened = Unpacker(()).unpack(make(Deb(fields="Multi-Arch: same\n")))
    assert "/var/lib/dpkg/info/tool:amd64.list" in opened.info


def test_conffiles_stand_in_the_database_with_their_sums(make: Make) -> None:
    deb = make(Deb({"etc/tool": "x\n"}, {"md5sums": "", "conffiles": "/etc/tool\n"}))
    opened = Unpacker(()).unpack(deb)
    assert opened.control.endswith("Conffiles:\n /etc/tool 401b30e3b8b5d629635a5c613cdb7919\n")
    assert opened.conffiles == ("/etc/tool",)


@pytest.mark.parametrize(
    ("control", "why"),
    [
        ({"md5sums": "", "preinst": "#!/bin/sh\n"}, "runs before it is unpacked"),
        ({"md5sums": "", "triggers": "interest-noawait /usr/lib\n"}, "waits for triggers"),
        ({}, "no sums"),
    ],
)
def test_what_needs_more_than_files_is_left_to_dpkg(make: Make, control: dict[str, str], why: str) -> None:
    deb = make(Deb(control=control))
    opened = Unpacker(()).unpack(deb)
    assert why in opened.by_dpkg
    # Its files can be laid down where nothing else can be: in an empty root. Its records are dpkg's to write.
    assert set(entries(deb)) == {"./usr/bin/tool"}


def test_triggers_that_unpacking_activates_are_known(make: Make) -> None:
    triggers = "# c\nactivate-noawait ldconfig\nactivate other # why\n"
    opened = Unpacker(()).unpack(make(Deb(control={"md5sums": "", "triggers": triggers})))
    assert opened.activates == ("ldconfig", "other")


def test_pre_dependencies_are_names(make: Make) -> None:
    opened = Unpacker(()).unpack(make(Deb(fields="Pre-Depends: libc6 (>= 2.3), a:any | b,\n c\n")))
    assert opened.pre_depends == ("libc6", "a", "b", "c")


def test_a_deb_is_taken_apart_once_and_anew_in_another_form(make: Make) -> None:
    deb = make(Deb())
    first = Unpacker(()).unpack(deb)
    made = deb.with_suffix(".files").stat().st_ino
    assert Unpacker(()).unpack(deb) == first
    assert deb.with_suffix(".files").stat().st_ino == made
    assert Unpacker(DOCS).read(deb) is None
    assert Unpacker(DOCS).unpack(deb).form != first.form
    deb.with_suffix(".files").unlink()
    assert Unpacker(DOCS).read(deb) is None


@pytest.mark.parametrize("damage", ["empty", "ar", "cut", "name"])
def test_what_is_no_deb_leaves_nothing_behind(make: Make, tmp_path: Path, damage: str) -> None:
    deb = make(Deb({"usr/bin/tool": "x" * 100000}))
    data = deb.read_bytes()
    bad = {
        "empty": b"",
        "ar": data.replace(b"control.tar", b"kontrol.tar"),
        "cut": data[: len(data) - 100],
        "name": data.replace(b"data.tar.xz", b"data.tar.zz"),
    }
    deb.write_bytes(bad[damage])
    before = set(tmp_path.iterdir())
    with pytest.raises(DAMAGE):
        Unpacker(()).unpack(deb)
    assert set(tmp_path.iterdir()) == before


def test_a_name_that_leads_out_of_the_root_is_refused(tmp_path: Path) -> None:
    tars = {}
    for name, path in {"control": "control", "data": "../etc/passwd"}.items():
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            entry = tarfile.TarInfo(path)
            entry.size = 11
            tar.addfile(entry, io.BytesIO(b"Package: x\n"))
        tars[f"{name}.tar"] = buffer.getvalue()
    members = {"debian-binary": b"2.0\n", **tars}
    deb = tmp_path / "x.deb"
    with deb.open("wb") as file:
        file.write(b"!<arch>\n")
        for name, data in members.items():
            file.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode())
            file.write(data + b"\n" * (len(data) % 2))
    with pytest.raises(ValueError, match="leads out of the root"):
        Unpacker(()).unpack(deb)
