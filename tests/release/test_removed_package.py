# SPDX-License-Identifier: Apache-2.0
"""The jail's package is removed while PAM and Slurm still name its files: whoever removes it is told.

Without the PAM module sshd refuses every session, root's as well, and the node could not be reached again.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from cellblock.paths import PROJECT

SCRIPT = PROJECT / "deploy/packages/debian/cellblock-jail-slurm@SLURM@.postrm.in"


def told(root: Path, action: str) -> str:
    done = subprocess.run(
        ["sh", str(SCRIPT), action],
        env={**os.environ, "DPKG_ROOT": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr


def test_lines_that_are_left_are_named_with_how_to_take_them_out(tmp_path: Path) -> None:
    sshd, common = tmp_path / "etc/pam.d/sshd", tmp_path / "etc/pam.d/common-session"
    plugstack = tmp_path / "etc/slurm/plugstack.conf"
    for path, text in (
        (sshd, "session required pam_limits.so\nsession required pam_jail.so jail-jobs=yes\n"),
        (common, "# session required pam_jail.so\n"),
        (plugstack, "include plugstack.conf.d/*\nrequired spank_jail.so jail-partitions=trial\n"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    said = told(tmp_path, "remove")
    assert f"{sshd} still names pam_jail.so" in said
    assert f"{plugstack} still names spank_jail.so" in said
    assert str(common) not in said
    for line in said.splitlines():
        subprocess.run(["sh", "-ec", line[line.index("sed -i") :]], check=True)
    assert sshd.read_text() == "session required pam_limits.so\n"
    assert plugstack.read_text() == "include plugstack.conf.d/*\n"
    assert told(tmp_path, "remove") == ""


def test_an_upgrade_and_a_purge_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "etc/pam.d").mkdir(parents=True)
    (tmp_path / "etc/pam.d/sshd").write_text("session required pam_jail.so\n")
    assert told(tmp_path, "upgrade") == told(tmp_path, "purge") == ""
