# SPDX-License-Identifier: Apache-2.0
"""Kernel settings of the node: which are safe, what is said of the others; `up` says it in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock import doctor
from cellblock.errors import CellblockError
from cellblock.events import Event, Events, Message
from cellblock.machine import node_settings
from cellblock.machine.node_settings import check_settings, refuse_without_user_namespaces, warn_of_node

SAFE = {
    "fs.protected_symlinks": "1",
    "fs.protected_hardlinks": "1",
    "fs.protected_fifos": "2",
    "fs.protected_regular": "2",
    "kernel.yama.ptrace_scope": "1",
    "user.max_user_namespaces": "15000",
    "kernel.unprivileged_userns_clone": "1",
    "dev.tty.legacy_tiocsti": "0",
    "kernel.core_pattern": "core.%p",
}
OFF = dict.fromkeys(SAFE, "0") | {
    "dev.tty.legacy_tiocsti": "1",
    "kernel.core_pattern": "|/usr/share/apport/apport -p%p",
}


def proc_sys(folder: Path, settings: dict[str, str]) -> Path:
    """A folder like /proc/sys with those settings."""
    for name, value in settings.items():
        path = folder / name.replace(".", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    return folder


def warnings(folder: Path) -> list[str]:
    seen: list[Event] = []
    events = Events()
    events.subscribe(seen.append)
    warn_of_node(events, folder)
    return [event.text for event in seen if isinstance(event, Message) and event.level == "warning"]


def test_every_setting_is_looked_at() -> None:
    assert {setting.name for setting in node_settings.NODE_SETTINGS} == set(SAFE)


def test_a_safe_node_is_said_nothing_of(tmp_path: Path) -> None:
    folder = proc_sys(tmp_path, SAFE)
    assert all(one.safe for one in check_settings(folder))
    assert warnings(folder) == []


@pytest.mark.parametrize("name", SAFE)
def test_a_setting_that_is_off_is_found_with_the_command_that_sets_it(tmp_path: Path, name: str) -> None:
    folder = proc_sys(tmp_path, {**SAFE, name: OFF[name]})
    (found,) = (one for one in check_settings(folder) if not one.safe)
    assert found.setting.name == name
    wanted = found.setting.wanted
    assert found.setting.number(str(wanted)) in found.setting.safe
    assert f": sysctl -w {name}={wanted}; to keep it: " in found.setting.advice
    assert found.setting.advice.endswith(f"echo {name}={wanted} >> /etc/sysctl.d/60-cellblock.conf")


def test_up_says_it_in_one_line_that_points_to_the_doctor(tmp_path: Path) -> None:
    (text,) = warnings(proc_sys(tmp_path, OFF))
    assert "\n" not in text
    assert all(name in text for name in SAFE)
    assert "`python3 build.py doctor`" in text


def test_what_a_kernel_does_not_have_is_no_fault_but_user_namespaces(tmp_path: Path) -> None:
    found = {one.setting.name: one for one in check_settings(tmp_path)}
    assert [name for name, one in found.items() if not one.safe] == ["user.max_user_namespaces"]
    assert found["kernel.yama.ptrace_scope"].why == "this kernel has no such setting"


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    folder = proc_sys(tmp_path, {**SAFE, "fs.protected_fifos": "on"})
    found = {one.setting.name: one for one in check_settings(folder)}["fs.protected_fifos"]
    assert found.safe
    assert "protected_fifos: cannot be read: not a number" in found.why


def test_without_user_namespaces_up_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    refuse_without_user_namespaces(proc_sys(tmp_path, SAFE))
    proc_sys(tmp_path, OFF)
    with pytest.raises(CellblockError, match="max_user_namespaces") as caught:
        refuse_without_user_namespaces(tmp_path)
    assert "--jail-root operator" in caught.value.hint


def test_the_doctor_warns_of_each_and_misses_user_namespaces_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_packages", lambda: iter(()))
    monkeypatch.setattr(doctor, "PROC_SYS", proc_sys(tmp_path, OFF))
    verdicts = {one.subject: one.verdict for one in doctor.examine() if one.subject in SAFE}
    assert verdicts == {name: "missing" if name == "user.max_user_namespaces" else "warning" for name in SAFE}


def test_the_doctor_says_in_words_whether_core_files_go_to_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_packages", lambda: iter(()))
    for settings, words in ((OFF, "names a program"), (SAFE, "names no program")):
        monkeypatch.setattr(doctor, "PROC_SYS", proc_sys(tmp_path, settings))
        (found,) = (one for one in doctor.examine() if one.subject == "kernel.core_pattern")
        assert found.found == words
