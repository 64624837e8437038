from __future__ import annotations

from cellblock.build import bootstrap


def test_exact_versions_are_installed_from_the_given_folder_only() -> None:
    lines = bootstrap.install(["a=1", "b=2~x"], "/run/packages")
    command = next(line for line in lines if " install " in line)
    assert command.endswith("install a=1 'b=2~x' </dev/null")
    assert "Dir::Etc::SourceParts=-" in command
    assert any("deb [trusted=yes] file:/run/packages ./" in line for line in lines)


def test_recommended_packages_are_not_installed_and_no_service_starts() -> None:
    text = "\n".join(bootstrap.install(["a"], "/x"))
    assert "APT::Install-Recommends=false" in text
    assert "exit 101" in text
    assert "rm /usr/sbin/policy-rc.d" in text
