"""The C unit tests of the cache, one program a unit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.c_compiling import make
from tests.enroot.cache.conftest import SOURCES


@pytest.mark.parametrize("options", [[], ["SANITIZE=1"]], ids=["plain", "sanitized"])
def test_units(producer: Path, options: list[str]) -> None:
    build = producer.parent  # compiled there already, but for the sanitizers
    done = make(SOURCES, build, "check", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(", 0 failed") == len(list(SOURCES.glob("tests/test_*.c")))
