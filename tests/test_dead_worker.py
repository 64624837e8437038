# SPDX-License-Identifier: Apache-2.0
"""A worker of pytest that dies: how it died is said, and a test that may run again runs again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cellblock.paths import PROJECT

_TESTS = """
import os, signal, time
from pathlib import Path

import pytest

MARK = Path(__file__).with_name("died")

{mark}
def test_dies_once():
    if not MARK.exists():
        MARK.touch()
        # The plugin that runs tests again hears of one by a socket, and knows no test that died sooner.
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)

def test_another():
    pass
"""


@pytest.mark.parametrize(
    ("mark", "status", "summary"),
    [
        ("@pytest.mark.flaky(reruns=1)", 0, "2 passed, 1 rerun"),
        ("", 1, "FAILED (???, 0 s) test_it.py::test_dies_once"),
    ],
)
def test_a_worker_that_dies(mark: str, status: int, summary: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(_TESTS.format(mark=mark))
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PYTEST_ADDOPTS": ""}
    # In the folder that all share, it would warn of what other runs remove at the same time, and count that.
    own = ["-p", "no:cacheprovider", f"--basetemp={tmp_path / 'temporary'}"]
    command = [sys.executable, "-m", "pytest", *own, "-n2", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout
    assert summary in done.stdout, done.stdout[-2000:]
    last = done.stdout.splitlines()[-3:]
    assert any(re.match(r"WORKER gw\d ended with -9 \(negative: a signal\); ", line) for line in last)
