"""Trees to assemble from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from jail_trees import make_everything
from upgraded_jail import Jail

from cellblock.events import Events


@pytest.fixture
def everything(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "everything"
    make_everything(root)
    yield root
    (root / "shut").chmod(0o755)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A root with a program, a directory and a user's home, and nothing special."""
    root = tmp_path / "small"
    (root / "home/ada").mkdir(parents=True)
    (root / "etc").mkdir()
    (root / "etc/os-release").write_text("ID=small\n")
    return root


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def jail(tmp_path: Path) -> Jail:
    """A volume for upgrades, not assembled yet."""
    return Jail(tmp_path)
