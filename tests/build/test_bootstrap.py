from __future__ import annotations

from cellblock.build import bootstrap
from cellblock.lock.model import LockedPackage


def package(name: str, version: str = "1", *depends: str) -> LockedPackage:
    return LockedPackage(name, version, "amd64", "0" * 64, 1, 1, "f", 0, "o", False, ("x",), depends)


def test_exactly_the_given_debs_are_installed_each_after_what_it_needs() -> None:
    packages = [package("a", "1", "b | c"), package("b", "2:3"), package("z")]
    command = next(line for line in bootstrap.install(packages, "/run/debs") if " --install " in line)
    debs = command.partition("--install ")[2].partition(" <")[0]
    assert debs == "/run/debs/b_2%3a3_amd64.deb /run/debs/a_1_amd64.deb /run/debs/z_1_amd64.deb"


def test_packages_that_need_each_other_come_in_some_order_each_once() -> None:
    circle = [package("a", "1", "b"), package("b", "1", "a")]
    assert sorted(each.name for each in bootstrap.in_order(circle)) == ["a", "b"]


def test_where_dpkg_alone_does_not_do_apt_sees_only_that_folder() -> None:
    text = "\n".join(bootstrap.install([package("a"), package("b", "2~x")], "/run/debs"))
    assert "Dir::Etc::SourceParts=-" in text
    assert "deb [trusted=yes] file:/run/debs ./" in text
    assert "--fix-broken install a=1 'b=2~x' </dev/null" in text
    assert "APT::Install-Recommends=false" in text


def test_no_service_is_started_and_the_program_that_forbids_it_goes() -> None:
    lines = bootstrap.install([package("a")], "/x")
    assert any("exit 101" in line for line in lines)
    assert lines[-1] == "rm /usr/sbin/policy-rc.d"
