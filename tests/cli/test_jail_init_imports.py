# SPDX-License-Identifier: Apache-2.0
"""The command of jail-init starts without the folders of the package that the image leaves out."""

from __future__ import annotations

import re
import subprocess
import sys

from cellblock.paths import PROJECT

_IMPORT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition("cellblock.")[2] in sys.argv[1].split():
            raise ModuleNotFoundError(f"jail-init has no {name}")

sys.meta_path.insert(0, Missing())
"""


def test_the_command_starts_without_what_jail_init_leaves_out() -> None:
    files = (PROJECT / "images/jail-init-files/image.yaml").read_text()
    removed = re.search(r"cd cellblock; rm -rf ([a-z ]+)\)", files)
    tried = re.search(r"python3 -c '(import [^']+)'", (PROJECT / "images/jail-init/image.yaml").read_text())
    assert removed is not None
    assert tried is not None
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT + tried[1], removed[1]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
