# SPDX-License-Identifier: Apache-2.0
"""Empty packages that take the place of large ones: apt prefers them, and they say why."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cellblock.build.stand_ins import StandIns
from cellblock.paths import PROJECT
from cellblock.variants import load_variants
from tests.integration.archive import private_apt

REASON = "No node has\n one."


def made(folder: Path) -> StandIns:
    found = StandIns({"libhuge5": REASON}, "amd64", folder)
    found.ensure()
    return found


def test_apt_takes_the_empty_package_for_the_real_one(tmp_path: Path) -> None:
    archive = made(tmp_path / "stand-ins").archive.path
    get = private_apt(tmp_path / "apt", [f"deb [trusted=yes] file://{archive} ./"])
    for command in (["update"], ["download", "libhuge5"]):
        subprocess.run([*get, *command], cwd=tmp_path, check=True, capture_output=True)
    (deb,) = tmp_path.glob("*.deb")
    shown = subprocess.run(["dpkg-deb", "--info", deb], capture_output=True, text=True, check=True).stdout
    assert "No node has one." in shown
    # Above whatever an archive will have: an upgrade inside the jail keeps it.
    newer = ["dpkg", "--compare-versions", "99:0+cellblock1", "gt", "20:9.9"]
    subprocess.run(newer, check=True)
    listed = subprocess.run(["dpkg-deb", "--contents", deb], capture_output=True, text=True, check=True)
    files = [line.split()[-1] for line in listed.stdout.splitlines() if not line.startswith("d")]
    assert files == ["./usr/share/doc/libhuge5/README.Cellblock"]


def test_the_same_packages_are_the_same_bytes_and_others_are_not(tmp_path: Path) -> None:
    first, second = made(tmp_path / "a"), made(tmp_path / "b")
    assert first.key == second.key
    assert [path.read_bytes() for path in sorted(first.archive.path.iterdir())] == [
        path.read_bytes() for path in sorted(second.archive.path.iterdir())
    ]
    assert StandIns({"libhuge5": "another reason"}, "amd64", tmp_path).key != first.key


@pytest.mark.parametrize("name", ["debian13", "debian14"])
def test_each_has_a_reason(name: str) -> None:
    stand_ins = load_variants(PROJECT / "images" / "variants.yaml")[name].distribution.stand_ins
    assert stand_ins
    assert all(reason.endswith(".") for reason in stand_ins.values())
