# SPDX-License-Identifier: Apache-2.0
"""Whom associate-users finds without an association: root in the jail makes as many users as it likes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cellblock.paths import PROJECT

_PROGRAM = PROJECT / "images" / "controller" / "files" / "usr" / "lib" / "cellblock" / "associate-users"
_MOST = 20000


def _without_association(folder: Path, known: list[str], users: list[str]) -> tuple[list[str], str]:
    """What the program's function prints, and says; sacctmgr stands for Slurm's, and knows `known`."""
    text = _PROGRAM.read_text(encoding="utf-8")
    most = next(line for line in text.splitlines() if line.startswith("MOST_USERS="))
    function = text[text.index("without_association() {") : text.index("\n}\n") + 3]
    (folder / "known").write_text("".join(f"{name}\n" for name in known))
    (folder / "passwd").write_text(
        "".join(f"{name}:x:{1000 + at}:100::/home:/bin/sh\n" for at, name in enumerate(users))
    )
    fake = folder / "sacctmgr"
    fake.write_text(f"#!/bin/sh\ncat {folder}/known\n")
    fake.chmod(0o755)
    done = subprocess.run(
        ["sh", "-euc", f"PASSWD={folder}/passwd\n{most}\n{function}\nwithout_association"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"PATH": f"{folder}:/usr/bin:/bin"},
    )
    return done.stdout.split(), done.stderr


def test_those_who_are_new_are_found(tmp_path: Path) -> None:
    assert _without_association(tmp_path, ["root", "ada"], ["ada", "Ada", "bob"]) == (["bob"], "")


def test_users_who_are_long_gone_keep_nobody_out(tmp_path: Path) -> None:
    known = [f"gone-{at:027}" for at in range(_MOST - 1)]
    assert _without_association(tmp_path, known, ["bob"]) == (["bob"], "")


def test_the_accounting_gets_no_users_without_end(tmp_path: Path) -> None:
    found, said = _without_association(tmp_path, ["root"], [f"user-{at}" for at in range(_MOST + 4)])
    assert found == [f"user-{at}" for at in range(_MOST - 1)]
    assert said == f"associate-users: the accounting has {_MOST} users; 5 of the jail get no association\n"
