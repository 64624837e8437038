from __future__ import annotations

from pathlib import Path

import pytest

from cellblock.oci.layout import Layout
from tests.integration.registry import repository_of


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "layout")


@pytest.fixture
def path(request: pytest.FixtureRequest) -> str:
    return repository_of(request)
