# SPDX-License-Identifier: Apache-2.0
"""The script that makes the user of the proof, run with programs of the test's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cellblock.cluster.proof_user import ENSURE_SCRIPT, PROOF_USER

ENTRY = f"{PROOF_USER}:x:1000:1000::/home/{PROOF_USER}:/bin/bash"
# Knows whom useradd wrote down.
GETENT = '#!/bin/sh\ncat "${0%/*}/passwd" 2>/dev/null\n'
USERADD = f'#!/bin/sh\necho "$*" >"${{0%/*}}/asked"; echo "{ENTRY}" >"${{0%/*}}/passwd"\n'


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The PATH of a jail."""
    (tmp_path / "cat").symlink_to("/bin/cat")
    add(tmp_path, "getent", GETENT)
    return tmp_path


def add(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def ensure(programs: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", ENSURE_SCRIPT, PROOF_USER],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_missing_user_is_made_with_a_home_and_a_shell(programs: Path) -> None:
    add(programs, "useradd", USERADD)
    done = ensure(programs)
    assert (done.returncode, done.stdout) == (0, f"{ENTRY}\n")
    asked = (programs / "asked").read_text()
    assert "--create-home --shell /bin/bash" in asked
    assert asked.endswith(f" {PROOF_USER}\n")


def test_a_user_who_is_there_is_not_changed(programs: Path) -> None:
    add(programs, "useradd", USERADD)
    (programs / "passwd").write_text(f"{PROOF_USER}:x:4242:4242::/nowhere:/bin/sh\n")
    done = ensure(programs)
    assert (done.returncode, done.stdout) == (0, f"{PROOF_USER}:x:4242:4242::/nowhere:/bin/sh\n")
    assert not (programs / "asked").exists()


def test_a_jail_without_useradd_says_so(programs: Path) -> None:
    done = ensure(programs)
    assert done.returncode != 0
    assert done.stdout == "the jail has no useradd (package passwd)\n"


def test_what_useradd_says_is_passed_on(programs: Path) -> None:
    add(programs, "useradd", "#!/bin/sh\necho 'useradd: group cellblock exists' >&2; exit 9\n")
    done = ensure(programs)
    assert done.returncode != 0
    assert "group cellblock exists" in done.stdout
