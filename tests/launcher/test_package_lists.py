# SPDX-License-Identifier: Apache-2.0
"""build.py on a machine whose apt has no lists of packages, where all that it lacks is optional."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cellblock.launcher import install, system_packages
from cellblock.launcher.system_packages import NEEDS, Available, needs_of

_GROUPS = ("kubernetes",)
_ABSENT = "etcd-server"
_HERE = {
    package for need in needs_of(_GROUPS, (), "") for package in need.alternatives[0] if package != _ABSENT
}


class Machine:
    """Has all but one package, which apt offers once it has lists."""

    def __init__(self, folder: Path) -> None:
        self.lists = folder / "lists"
        self.lists.mkdir()
        self.has_network = True
        self.ran: list[str] = []
        self.said = ""

    def run(self, command: list[str], what: str) -> str:
        """In the place of apt-get."""
        self.ran.append(command[-1])
        if command[-1] == "update":
            if not self.has_network:
                raise install.InstallError(f"cannot {what}: no network\n  next: wait")
            (self.lists / "debian_main_binary-amd64_Packages.lz4").touch()
        return self.said

    def available(self, packages: list[str]) -> Available:
        """In the place of apt-cache and dpkg-query."""
        offered = dict.fromkeys(_HERE, "1")
        if any(self.lists.iterdir()):
            offered[_ABSENT] = "1"
        return Available(frozenset(_HERE & set(packages)), offered)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(install, "LISTS", made.lists)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(install, "_run", made.run)
    monkeypatch.setattr(system_packages, "available", made.available)
    monkeypatch.setattr(system_packages, "interpreter_needs", lambda *_, **__: [])
    return made


def test_lists_are_read_before_what_is_optional_is_left_out(machine: Machine) -> None:
    assert all(need.optional for need in NEEDS["kubernetes"])
    install.install_system_packages(_GROUPS, is_root=True)
    assert machine.ran == ["update", _ABSENT]


def test_with_lists_what_apt_does_not_offer_is_left_out_at_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.lists / "debian_main_binary-amd64_Packages").touch()
    monkeypatch.setattr(
        system_packages, "available", lambda packages: Available(frozenset(_HERE & set(packages)), {})
    )
    install.install_system_packages(_GROUPS, is_root=True)
    assert machine.ran == []


def test_without_a_network_what_is_optional_is_left_out(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.has_network = False
    install.install_system_packages(_GROUPS, is_root=True)
    assert machine.ran == ["update"]
    assert "going on without optional packages: cannot update apt's package lists" in capsys.readouterr().err


def test_who_is_not_root_goes_on_without_what_is_optional(machine: Machine) -> None:
    install.install_system_packages(_GROUPS, is_root=False)
    assert machine.ran == []


NO_NETWORK = """\
Err:1 http://deb.example.org/debian forky InRelease
  Temporary failure resolving 'deb.example.org'
Reading package lists...
W: Failed to fetch http://deb.example.org/debian/dists/forky/InRelease  Temporary failure resolving 'deb'
W: Some index files failed to download. They have been ignored, or old ones used instead.
"""
EXPIRED = "W: Failed to fetch http://deb.example.org/debian/dists/forky/InRelease  the key has expired\n"


@pytest.mark.parametrize(
    ("said", "cause", "next_step"),
    [
        (NO_NETWORK, "| W: Failed to fetch http://deb.example.org", "this looks like no network"),
        (EXPIRED, "the key has expired", "mend what the lines above name in /etc/apt"),
        ("Reading package lists...\n", "apt offers no buildah", "enable the archive component"),
    ],
)
def test_lists_that_could_not_be_fetched_are_named_where_packages_lack(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, said: str, cause: str, next_step: str
) -> None:
    # Without a network apt-get update ends with status 0, having said so.
    machine.said = said
    monkeypatch.setattr(system_packages, "available", lambda _: Available(frozenset(), {}))
    with pytest.raises(install.InstallError) as raised:
        install.install_system_packages(["core"], is_root=True)
    message, _, told_next = str(raised.value).partition("\n  next: ")
    assert message.startswith("apt offers no buildah, which makes and commits images")
    assert cause in message
    assert told_next.startswith(next_step)
    assert machine.ran == ["update"]
