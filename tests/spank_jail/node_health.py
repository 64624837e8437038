# SPDX-License-Identifier: Apache-2.0
"""Runs node-health and its checks on a folder that stands for a node."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellblock.cluster.definition.health_part import own_checks

_LONGEST_S = 120


@dataclass(frozen=True)
class Node:
    """Folders of a node below `base`; `programs` has what was compiled."""

    base: Path
    programs: Path
    name: str = "node-1"

    def make(self) -> Node:
        """Make the folders, with the image's checks in place."""
        for folder in ("checks", "site", "state", "memory"):
            (self.base / folder).mkdir(mode=0o755)
        for check in own_checks():
            (self.base / "checks" / check).symlink_to(self.programs / "node-checks")
        return self

    def check(
        self, name: str, *arguments: str, before: str = "", node: str = "node-1", namespaces: str = ""
    ) -> tuple[int, str]:
        """Status and first line of a check, run after the shell script `before` in namespaces of its own."""
        words = " ".join(f"'{one}'" for one in arguments)
        memory = self.base / "memory" / name
        memory.mkdir(exist_ok=True)
        script = f"{before}\nexec {self.base}/checks/{name} {words}"
        # To a file: what `before` leaves running would keep a pipe open.
        said = self.base / "said"
        with said.open("w") as output:
            done = subprocess.run(
                ["unshare", "--mount", *namespaces.split(), "sh", "-euc", script],
                stdout=output,
                check=False,
                timeout=_LONGEST_S,
                env={
                    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                    "CELLBLOCK_HEALTH_STATE": str(memory),
                    "CELLBLOCK_NODE": node,
                },
            )
        return done.returncode, said.read_text().strip()

    def table(self, text: str) -> None:
        """Write the image's checks.conf."""
        (self.base / "checks/checks.conf").write_text(text)

    def configure(self, text: str = "") -> None:
        """Write health.conf."""
        (self.base / "health.conf").write_text(text)

    def program(self, name: str, script: str, folder: str = "checks") -> None:
        """A check that is a script."""
        path = self.base / folder / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def health(self, *options: str, slurm: bool = False) -> subprocess.CompletedProcess[str]:
        """Run node-health."""
        folders = (
            f"--config={self.base}/health.conf",
            f"--checks={self.base}/checks",
            f"--state={self.base}/state",
        )
        return subprocess.run(
            [
                self.programs / "node-health",
                *folders,
                f"--node={self.name}",
                *([] if slurm else ["--offline"]),
                *options,
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST_S,
        )

    def turn(self, *options: str) -> dict[str, dict[str, Any]]:
        """Run a turn, and say what is known after it: check -> verdict, sick, text."""
        done = self.health(*options)
        assert done.returncode == 0, done.stderr
        return self.shown()

    def shown(self) -> dict[str, dict[str, Any]]:
        """What `--show --json` says."""
        shown = json.loads(self.health("--show", "--json").stdout)
        return {one["check"]: one for one in shown["checks"]}
