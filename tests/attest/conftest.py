# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of attestations and audits: images in a layout, made of a few layers each."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cellblock.attest.policy import Policy, load_policy
from cellblock.attest.subject import Subject
from cellblock.oci.layout import Layout
from tests.oci.layers import make_image, member

Layer = Sequence[tuple[tarfile.TarInfo, bytes]]
MakeSubject = Callable[..., Subject]
WritePolicy = Callable[[str], Policy]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "layout")


@pytest.fixture
def make(layout: Layout) -> MakeSubject:
    """An image of the variant v1 out of layers, the lowest first."""

    def make(*layers: Layer, name: str = "worker", variant: str = "v1", **configured: Any) -> Subject:
        reference = f"localhost/cellblock/{name}:{variant}"
        make_image(layout, reference, *layers, **configured)
        return Subject(name, variant, reference, layout, layout.image(reference))

    return make


@pytest.fixture
def write_policy(tmp_path: Path) -> WritePolicy:
    def write(text: str) -> Policy:
        path = tmp_path / "policy.yaml"
        path.write_text("origins: [Debian]\n" + text)
        return load_policy(path)

    return write


def database(*packages: tuple[str, str] | tuple[str, str, str]) -> tuple[tarfile.TarInfo, bytes]:
    """dpkg's status file with packages (name, version[, source package])."""
    stanzas = [
        f"Package: {package[0]}\nStatus: install ok installed\nArchitecture: amd64\n"
        f"Maintainer: Some One <some@one.example>\n"
        + (f"Source: {package[2]}\n" if len(package) > 2 else "")
        + f"Version: {package[1]}\nDescription: a thing\n with more\n"
        for package in packages
    ]
    return member("var/lib/dpkg/status", "\n".join(stanzas))


COPYRIGHT = """Format: http://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: thing

Files: *
Copyright: 2020 Some One
License: GPL-2+ or Artistic

Files: debian/*
Copyright: 2021 Some One
License: public-domain
 Do what you want.

License: GPL-2+
 See /usr/share/common-licenses/GPL-2.
"""


@pytest.fixture
def billed(make: MakeSubject) -> Subject:
    """Two packages, one of which owns a program through a linked folder, and files of nobody."""
    owned = "/.\n/bin\n/bin/tool\n/usr/share/doc/libstdc++6/copyright\n"
    return make(
        [
            database(("libstdc++6", "1:14.2-1", "gcc-14 (14.2-1)"), ("munge", "0.5.16-1")),
            member("var/lib/dpkg/info/libstdc++6:amd64.list", owned),
            member("usr/share/doc/libstdc++6/copyright", COPYRIGHT),
            member("usr/lib/os-release", 'ID=debian\nVERSION_ID="13"\n'),
            member("etc/os-release", link="../usr/lib/os-release"),
            member("usr/bin"),
            member("usr/bin/tool", "x"),
            member("bin", link="usr/bin"),
        ],
        [member("usr/lib/spank_jail.so", "compiled"), member("var/lib/state", "made while installing")],
    )
