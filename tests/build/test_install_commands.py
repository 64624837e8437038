# SPDX-License-Identifier: Apache-2.0
"""The command lines that install exactly the locked packages in a root."""

from __future__ import annotations

from pathlib import Path

from cellblock.build import install_commands
from cellblock.build.unpack_packages import Opened, Unpacking, plan_unpacking
from cellblock.lock.model import LockedPackage
from cellblock.packages.unpacked_deb import UnpackedDeb


def package(name: str, version: str = "1", *depends: str) -> LockedPackage:
    return LockedPackage(name, version, "amd64", "0" * 64, 1, 1, "f", 0, "o", False, ("x",), depends)


def unpacking(*packages: LockedPackage) -> Unpacking:
    """All of them for dpkg."""
    deb = UnpackedDeb("form", "Package: x\n", (), (), (), (), (), 0, (), (), "test")
    return plan_unpacking([Opened(each, deb, Path("/none")) for each in packages], [])


def test_exactly_the_given_debs_are_installed_in_the_given_order() -> None:
    packages = unpacking(package("b", "2:3"), package("a"), package("z"))
    command = next(line for line in install_commands.install(packages, "/run/debs") if " --unpack " in line)
    debs = command.partition("--unpack ")[2].partition(" &&")[0]
    assert debs == "/run/debs/b_2%3a3_amd64.deb /run/debs/a_1_amd64.deb /run/debs/z_1_amd64.deb"


def test_where_dpkg_alone_does_not_do_apt_sees_only_that_folder() -> None:
    text = "\n".join(install_commands.install(unpacking(package("a"), package("b", "2~x")), "/run/debs"))
    assert "Dir::Etc::SourceParts=-" in text
    assert "deb [trusted=yes] file:/run/debs ./" in text
    assert "--fix-broken install a=1 'b=2~x' </dev/null" in text
    assert "APT::Install-Recommends=false" in text


def test_no_service_is_started_and_the_program_that_forbids_it_goes() -> None:
    lines = install_commands.install(unpacking(package("a")), "/x")
    assert any("exit 101" in line for line in lines)
    assert lines[-1] == "rm /usr/sbin/policy-rc.d"
