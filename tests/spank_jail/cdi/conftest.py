# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of GPU drivers: a jail with stub libraries, and drivers made for a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spank_jail.cdi.driver import Driver, compile_c, give_a_system, install
from tests.spank_jail.conftest import Jail
from tests.spank_jail.test_c_units import build, make, tools  # noqa: F401 (fixtures)

NEEDS_GPU = '#include <stdio.h>\nint cuInit(unsigned); int main(void) { printf("%d\\n", cuInit(0)); }\n'


@pytest.fixture
def driver(jail: Jail) -> Driver:
    return install(jail.base, "535.54.03")


@pytest.fixture(scope="module")
def stubs(build: Path) -> Path:  # noqa: F811
    done = make(build, "driver-stubs", f"OUT={build}")
    assert done.returncode == 0, done.stderr
    return build / "driver-stubs"


@pytest.fixture
def system(jail: Jail, driver: Driver, stubs: Path) -> Jail:
    """A jail with stubs, and a program in it that is linked to libcuda.so.1."""
    give_a_system(jail.root, stubs)
    library = str(driver.files / f"libcuda.so.{driver.version}")
    compile_c(NEEDS_GPU, jail.root / "data/program", library, "-Wl,--allow-shlib-undefined")
    return jail
