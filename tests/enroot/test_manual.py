# SPDX-License-Identifier: Apache-2.0
"""What enroot(1) and the completion say is all that there is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.enroot.conftest import SOURCES

PAGE = SOURCES / "man/enroot.1"


def test_every_setting_is_in_the_manual() -> None:
    keys = re.findall(r'\{ "ENROOT(_\w+)", "', (SOURCES.parent / "native/settings/settings.c").read_text())
    assert len(keys) >= 40
    text = PAGE.read_text()
    # One that shares its line with others stands there without ENROOT.
    assert [key for key in keys if not re.search(rf"(ENROOT|[ ,]){key}\b", text)] == []


def test_every_command_and_source_is_in_the_manual() -> None:
    commands = re.findall(r'^\t\{ "(\w+)", "', (SOURCES / "command/usage.c").read_text(), re.MULTILINE)
    assert len(commands) > 12
    text = PAGE.read_text().replace("\\-", "-")
    assert [name for name in commands if not re.search(rf"^\.BR .*\b{name}\b", text, re.MULTILINE)] == []
    for source in ("docker://", "oci:", "oci-archive:", "docker-archive:", "dockerd://", "podman://"):
        assert source in text
        assert source in (SOURCES / "completion/enroot.bash").read_text()


def test_the_manual_is_well_formed() -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    done = subprocess.run(
        ["groff", "-man", "-ww", "-z", "-Tutf8", str(PAGE)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


def test_names_that_are_completed_are_not_run(tmp_path: Path) -> None:
    (tmp_path / "enroot").write_text(f"#!/bin/sh\nprintf '%s\\n' 'a b' '$(touch {tmp_path}/run)' small\n")
    (tmp_path / "enroot").chmod(0o755)
    script = """
        source "$1"
        for word in a s ''; do
            COMP_WORDS=(enroot export "$word") COMP_CWORD=2
            _enroot
            echo "${#COMPREPLY[@]} ${COMPREPLY[0]}"
        done
    """
    command = ["bash", "-c", script, "bash", str(SOURCES / "completion/enroot.bash")]
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(command, env=path, capture_output=True, text=True, check=True)
    assert done.stdout == "1 a\\ b\n1 small\n3 a b\n"
    assert not (tmp_path / "run").exists()
