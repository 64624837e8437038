# SPDX-License-Identifier: Apache-2.0
"""What differs between two images: packages, files, privileges and configuration."""

from __future__ import annotations

import struct
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.inspect.diff import Differ, ImageDiff, NamedImage
from cellblock.inspect.diff_json import diff_json
from cellblock.oci.layout import Layout, StoredImage
from cellblock.oci.model import LAYER_GZIP, LAYER_ZSTD
from tests.oci.layers import make_image, member

Layer = Sequence[tuple[tarfile.TarInfo, bytes]]
NET_RAW = struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0)


def status(**packages: str) -> tuple[tarfile.TarInfo, bytes]:
    stanzas = (
        f"Package: {name}\nStatus: install ok installed\nVersion: {version}\n"
        for name, version in packages.items()
    )
    return member("var/lib/dpkg/status", "\n".join(stanzas))


def diff(folder: Path, old: Sequence[Layer], new: Sequence[Layer]) -> ImageDiff:
    layout = Layout(folder)
    first, second = make_image(layout, "old", *old), make_image(layout, "new", *new)
    return Differ().diff(NamedImage("old", layout, first), NamedImage("new", layout, second))


def test_packages_that_came_went_and_changed_version(tmp_path: Path) -> None:
    found = diff(
        tmp_path,
        [[status(libc6="2.41-12", vim="9", tini="1")]],
        [[status(libc6="2.41-13", nano="8", tini="1")]],
    )
    assert [(each.name, each.sign, each.old, each.new) for each in found.packages] == [
        ("libc6", "changed", "2.41-12", "2.41-13"),
        ("nano", "added", None, "8"),
        ("vim", "removed", "9", None),
    ]


def test_a_package_that_was_removed_but_not_purged_is_not_installed(tmp_path: Path) -> None:
    gone = member("var/lib/dpkg/status", "Package: vim\nStatus: deinstall ok config-files\nVersion: 9\n")
    assert [each.sign for each in diff(tmp_path, [[status(vim="9")]], [[gone]]).packages] == ["removed"]


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (member("f", "one"), member("f", "two"), "content, 3 bytes as before"),
        (member("f", "one"), member("f", "three"), "content, 3 -> 5 bytes"),
        (member("f", "x"), member("f", "x", mode=0o755), "mode 0644 -> 0755"),
        (member("f", "x"), member("f", "x", owner=(7, 8)), "owner 0:0 -> 7:8"),
        (member("f", "x"), member("f", link="x"), "type file -> symlink"),
        (member("f", link="x"), member("f", link="y"), "target x -> y"),
        (member("f", device=(1, 3)), member("f", device=(1, 5)), "device 1:3 -> 1:5"),
        (
            member("f", "x"),
            member("f", "x", xattrs={"user.a": b"1"}),
            "attribute user.a none -> '1'",
        ),
        (
            member("f", "x", xattrs={"security.capability": NET_RAW}),
            member("f", "x"),
            "capabilities cap_net_raw=ep -> none",
        ),
    ],
)
def test_each_way_in_which_a_file_can_differ_is_named(
    tmp_path: Path,
    old: tuple[tarfile.TarInfo, bytes],
    new: tuple[tarfile.TarInfo, bytes],
    what: str,
) -> None:
    assert [each.what for each in diff(tmp_path, [[old]], [[new]]).files] == [(what,)]


def test_a_time_is_no_difference(tmp_path: Path) -> None:
    info, data = member("f", "x")
    later = replace_time(info)
    found = diff(tmp_path, [[(info, data)]], [[(later, data)]])
    assert found.is_equal
    assert found.old_digest != found.new_digest


def replace_time(info: tarfile.TarInfo) -> tarfile.TarInfo:
    later = tarfile.TarInfo(info.name)
    later.size, later.mode, later.mtime = info.size, info.mode, 1_000_000
    return later


def test_how_layers_are_cut_and_compressed_is_no_difference(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    one = make_image(layout, "one", [member("a", "1"), member("b", "2")], media_type=LAYER_GZIP)
    two = make_image(layout, "two", [member("a", "1")], [member("b", "2")], media_type=LAYER_ZSTD)
    found = Differ().diff(NamedImage("one", layout, one), NamedImage("two", layout, two))
    assert found.is_equal
    assert (found.layers.shared_layers, found.layers.old_layers, found.layers.new_layers) == (0, 1, 2)


def test_bytes_of_layers_are_told_apart_by_who_has_them(tmp_path: Path) -> None:
    base, small = [member("base", "b" * 5000)], [member("small", "s")]
    found = diff(tmp_path, [base], [base, small])
    layout = Layout(tmp_path)
    layers = layout.image("new").manifest.layers
    assert (found.layers.shared, found.layers.old, found.layers.new) == (layers[0].size, 0, layers[1].size)


def test_a_file_is_shown_with_the_package_that_owns_it(tmp_path: Path) -> None:
    listed = member("var/lib/dpkg/info/libc6:amd64.list", "/.\n/lib/libc.so.6\n/etc/ld.so.conf\n")
    found = diff(
        tmp_path,
        [[listed, member("usr/lib/libc.so.6", "1"), member("etc/ld.so.conf", "1"), member("etc/x", "1")]],
        [[listed, member("usr/lib/libc.so.6", "2"), member("etc/x", "2")]],
    )
    assert {each.path: each.package for each in found.files} == {
        "usr/lib/libc.so.6": "libc6",
        "etc/ld.so.conf": "libc6",
        "etc/x": "",
    }


def test_privileges_that_came_and_went_are_a_list_of_their_own(tmp_path: Path) -> None:
    found = diff(
        tmp_path,
        [[member("su", "x", mode=0o4755), member("ping", "x"), member("plain", "x")]],
        [
            [
                member("su", "x"),
                member("ping", "x", xattrs={"security.capability": NET_RAW}),
                member("plain", "y"),
            ]
        ],
    )
    assert {each.path: each.privileges for each in found.privileged} == {
        "su": ("04755 0:0", ""),
        "ping": ("", "cap_net_raw=ep"),
    }


def test_settings_differ_by_variable_and_label(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    image = make_image(layout, "x", [member("f", "x")])

    def configured(**settings: object) -> NamedImage:
        return NamedImage("x", layout, with_settings(image, settings))

    found = Differ().diff(
        configured(Env=["PATH=/bin", "LANG=C"], Labels={"a": "1"}, Entrypoint=["tini", "--"], Cmd=None),
        configured(Env=["LANG=C", "PATH=/usr/bin"], Labels={"a": "1", "b": "2"}, Entrypoint=["init"]),
    )
    assert [(each.name, each.old, each.new) for each in found.settings] == [
        ("Entrypoint", "tini --", "init"),
        ("Env PATH", "/bin", "/usr/bin"),
        ("Labels b", None, "2"),
    ]
    assert not found.is_equal


def with_settings(image: StoredImage, settings: dict[str, object]) -> StoredImage:
    return replace(image, configuration=replace(image.configuration, settings=settings))


def test_json_has_paths_from_the_root_and_what_each_file_was(tmp_path: Path) -> None:
    text = diff_json(diff(tmp_path, [[member("f", "x")]], [[member("f", "x", mode=0o600)]]))
    assert text["equal"] is False
    assert text["files"][0]["path"] == "/f"
    assert (text["files"][0]["old"]["mode"], text["files"][0]["new"]["mode"]) == ("0644", "0600")
