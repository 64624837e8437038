# SPDX-License-Identifier: Apache-2.0
"""Each script that a benchmark reads lies in the package that it names, and each script is read."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from cellblock.paths import PROJECT

_BENCH = PROJECT / "cellblock" / "bench"
_READ = re.compile(r'files\("([\w.]+)"\)\.joinpath\("([^"]+)"\)')


def test_scripts_lie_where_they_are_read() -> None:
    texts = [path.read_text(encoding="utf-8") for path in _BENCH.rglob("*.py")]
    named = [match for text in texts for match in _READ.findall(text)]
    read = {Path(str(files(package).joinpath(name))) for package, name in named}
    assert read == {*_BENCH.rglob("*.sh")}
