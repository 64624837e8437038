# SPDX-License-Identifier: Apache-2.0
"""What names the repository and its password means the folder that the command was typed in."""

from __future__ import annotations

import os
import shutil

import pytest
from typer.testing import CliRunner
from upgraded_jail import FOO, Jail

from cellblock.cli.app import app

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root"),
    pytest.mark.skipif(shutil.which("restic") is None, reason="restic is missing: apt-get install restic"),
]


@pytest.mark.parametrize(
    ("variable", "value"),
    [("RESTIC_PASSWORD_FILE", "../pw"), ("RESTIC_PASSWORD_COMMAND", "cat ../pw"), ("", "cat '../pw'")],
)
def test_relative_to_where_it_was_typed(
    jail: Jail, variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jail.assemble(FOO)
    (jail.folder / "here it is").mkdir()
    (jail.folder / "pw").write_text("of the tests\n")
    monkeypatch.chdir(jail.folder / "here it is")
    monkeypatch.setenv("RESTIC_CACHE_DIR", "../cache")
    if variable:
        monkeypatch.setenv(variable, value)
    option = [] if variable else ["--password-command", value]
    for words in (
        ["backup", str(jail.path), "../repository", "--init"],
        ["backup", str(jail.path), "../repository", "--list"],
        ["restore", "../new", "../repository"],
    ):
        done = CliRunner().invoke(app, ["jail", *words, *option, "--log", "plain"])
        assert done.exit_code == 0, (words, done.output, done.exception)
    assert (jail.folder / "new/root/usr/bin/foo").exists()
    assert (jail.folder / "cache").is_dir()


def test_a_password_file_that_is_not_there_is_named(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    jail.assemble(FOO)
    monkeypatch.setenv("RESTIC_PASSWORD_FILE", "nowhere/pw")
    done = CliRunner().invoke(
        app, ["jail", "backup", str(jail.path), str(jail.folder / "r"), "--log", "plain"]
    )
    assert "RESTIC_PASSWORD_FILE: cannot read nowhere/pw: No such file" in str(done.exception)
