# SPDX-License-Identifier: Apache-2.0
"""`render kubernetes --cluster FILE --diff` where there is nothing to ask, and with options that write."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cellblock.cli.app import app
from cellblock.errors import CellblockError
from cellblock.kubernetes.difference import compare
from tests.kubernetes.helpers.rendered import described


def test_no_kubectl_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CellblockError, match="no kubectl on this machine"):
        compare(described(tmp_path))


@pytest.mark.parametrize("option", ["--output", "--secrets"])
def test_it_writes_nothing(option: str, tmp_path: Path) -> None:
    arguments = ["render", "kubernetes", "--cluster", "any", "--diff", option, str(tmp_path / "made")]
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, CellblockError)
    assert "--diff writes nothing" in done.exception.message
    assert not (tmp_path / "made").exists()
