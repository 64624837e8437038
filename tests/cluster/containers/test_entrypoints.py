# SPDX-License-Identifier: Apache-2.0
"""The shell of the entrypoints: bounded waits, and a jail of another release is refused."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from cellblock.paths import PROJECT

WAITING = PROJECT / "images" / "slurm" / "files" / "usr" / "lib" / "cellblock" / "waiting.sh"


def shell(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-euc", f". {WAITING}\n{script}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", **variables},
    )


def test_a_wait_ends_when_the_command_succeeds(tmp_path: Path) -> None:
    script = f"(sleep 0.3; touch {tmp_path}/there) & wait_for 'the file' [ -e {tmp_path}/there ]; echo on"
    assert shell(script).stdout == "on\n"


def test_a_wait_has_a_bound_and_says_for_what() -> None:
    done = shell("wait_for 'the moon' false", CELLBLOCK_WAIT_S="1")
    assert done.returncode == 1
    assert done.stderr == "cellblock-init: after 1 seconds, still waiting for the moon\n"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("VARIANT=debian13\nSLURM_RELEASE=24.11\n", 0),
        ("VARIANT=debian12\nSLURM_RELEASE=22.05\n", 1),
        ("SLURM_RELEASE=$(touch /tmp/never)\n", 1),
        ("", 1),
    ],
)
def test_a_jail_of_another_release_is_refused(tmp_path: Path, text: str, status: int) -> None:
    (tmp_path / "etc" / "cellblock").mkdir(parents=True)
    (tmp_path / "etc" / "cellblock" / "jail-release").write_text(text)
    (tmp_path / "release").write_text("24.11\n")
    done = shell(f"JAIL={tmp_path} RELEASE_FILE={tmp_path}/release; check_jail_release")
    assert done.returncode == status
    if status:
        assert "this image of 24.11" in done.stderr
        assert "assemble the jail" in done.stderr


@pytest.mark.parametrize(
    ("line", "wanted", "status"),
    [
        ("", "", 0),
        ("", "any", 1),
        ("sha256:1f docker://r/jail:2", "any", 0),
        ("sha256:1f docker://r/jail:2", "sha256:1f", 0),
        ("sha256:1f docker://r/jail:2", "sha256:2f", 1),
    ],
)
def test_the_jail_is_waited_for_until_it_is_said_to_be_ready(
    tmp_path: Path, line: str, wanted: str, status: int
) -> None:
    (tmp_path / "root/etc").mkdir(parents=True)
    (tmp_path / "root/etc/passwd").touch()
    if line:
        (tmp_path / "ready").write_text(f"{line}\n")
    script = f"JAIL={tmp_path}/root READY={tmp_path}/ready; wait_for_jail"
    done = shell(script, CELLBLOCK_JAIL_READY=wanted, CELLBLOCK_WAIT_S="1" if status else "20")
    assert done.returncode == status
    if status:
        assert f"{tmp_path}/ready" in done.stderr
        assert "look at the Job" in done.stderr


def test_whether_the_controller_listens_is_found_out_without_waiting_for_ever() -> None:
    # Nothing listens on port 1 of the loopback address.
    assert shell("controller_listens", CELLBLOCK_CONTROLLER="127.0.0.1:1").returncode != 0


def test_an_unknown_role_is_refused() -> None:
    init = (WAITING.parent.parent.parent / "bin" / "cellblock-init").read_text()
    done = shell(init.split("node.sh\n", 2)[2].replace("/usr/lib/cellblock", "/nowhere"))
    assert done.returncode == 1
    assert "no role ''" in done.stderr


@pytest.mark.parametrize(
    ("unmapped", "lines"),
    [
        ("0 64030", ["1 1 64029", "64031 64031 4294903264"]),
        ("1000 0 1 0", ["2 2 998", "1001 1001 4294966294"]),
        ("5-9 7 2-6", ["0 0 2", "10 10 4294967285"]),
    ],
)
def test_a_uid_map_leaves_out_who_is_not_vouched_for(unmapped: str, lines: list[str]) -> None:
    done = ids_shell(f"ids_without {unmapped}")
    assert done.stdout.splitlines() == lines


def ids_shell(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """As in an image, where slurm is 64030."""
    return shell(f". {WAITING.with_name('ids-for-jail.sh')}; id() {{ echo 64030; }}; {script}", **variables)


def test_the_jails_munged_vouches_for_no_system_user() -> None:
    done = ids_shell("uids_vouched_for")
    users = ["1000 1000 59001", "65536 65536 4294901759"]
    assert done.stdout.splitlines() == users
    more = ids_shell("uids_vouched_for", CELLBLOCK_NOT_VOUCHED="1000 2000-2999")
    assert more.stdout.splitlines() == ["1001 1001 999", "3000 3000 57001", *users[1:]]


@pytest.mark.parametrize(
    ("ends", "starts"),
    [
        # By a signal, then by what root inside used up for a while, then as it was told to.
        ("137 1 exit 1 0", 5),
        ("1", 1),
        ("0", 1),
    ],
)
def test_what_once_vouched_for_the_jail_is_started_again(tmp_path: Path, ends: str, starts: int) -> None:
    """`exit` ends the whole shell, as a wait does that was too long."""
    count = tmp_path / "starts"
    lines = "\n".join(
        f"{number}) {'exit 1' if end == 'exit' else f'return {end}'} ;;"
        for number, end in enumerate(ends.split(), 1)
    )
    daemon = f"daemon() {{ echo >>{count}; case $(wc -l <{count}) in {lines} esac; }}; sleep() {{ :; }}"
    done = ids_shell(f'{daemon}\nsupervise_for_jail "the daemon" daemon; echo over')
    assert done.stdout == "over\n", done.stderr
    assert len(count.read_text().splitlines()) == starts
    assert done.stderr.count("it is started again") == starts - 1


def test_a_user_namespace_that_is_not_to_be_had_is_told_at_once(tmp_path: Path) -> None:
    fakes = 'mkfifo() { command mkfifo "$3"; }; setpriv() { return 1; }'
    done = ids_shell(f"{fakes}; run_for_jail munge {tmp_path}/munge true", CELLBLOCK_WAIT_S="20")
    assert done.returncode == 1
    assert "there is no user namespace for the jail" in done.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("ada", "CELLBLOCK_NOT_VOUCHED: 'ada' is neither a uid nor a range"),
        ("1000;reboot", "'1000;reboot' is neither"),
        (" ".join(str(uid) for uid in range(1000, 2000, 2)), "list neighbours as ranges, FIRST-LAST"),
    ],
)
def test_a_list_of_uids_that_is_none_or_too_long_ends_the_container(given: str, message: str) -> None:
    done = ids_shell("uids_vouched_for", CELLBLOCK_NOT_VOUCHED=given)
    assert done.returncode == 1
    assert message in done.stderr


@pytest.mark.parametrize("processes", ["77", ""])
def test_a_user_may_have_as_many_processes_as_the_variable_says(processes: str) -> None:
    limits = "prlimit --nproc --noheadings --output=SOFT,HARD"
    before = shell(limits).stdout.split()
    script = f". {WAITING.with_name('accounts.sh')}; limit_users; {limits}"
    done = shell(script, CELLBLOCK_USER_PROCESSES=processes)
    assert done.stdout.split() == ([processes, processes] if processes else before)


def test_a_limit_that_is_none_is_refused() -> None:
    script = f". {WAITING.with_name('accounts.sh')}; limit_users; echo on"
    done = shell(script, CELLBLOCK_USER_PROCESSES="many")
    assert done.returncode == 1
    assert "see CELLBLOCK_USER_PROCESSES" in done.stderr


def as_nobody(folder: str, what: str) -> subprocess.CompletedProcess[str]:
    """On Kubernetes daemons start as their users, without root. Others may not read the checkout."""
    copy = Path(folder) / "waiting.sh"
    copy.write_text(WAITING.read_text())
    copy.chmod(0o644)
    return shell(f"setpriv --reuid=65534 --regid=65534 --clear-groups sh -euc '. {copy}; {what}'")


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_user_who_is_not_root_makes_his_folders_and_takes_mounted_ones() -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o1777)
        (Path(name) / "mounted").mkdir()
        (Path(name) / "mounted").chmod(0o777)
        done = as_nobody(name, f"own_folder 0700 {name}/made {name}/mounted")
        assert done.returncode == 0, done.stderr
        made = (Path(name) / "made").stat()
        assert (made.st_mode & 0o777, made.st_uid) == (0o700, 65534)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_a_folder_that_the_user_cannot_write_is_said() -> None:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        done = as_nobody(name, f"own_folder 0755 {name}")
        assert done.returncode == 1
        assert f"{name} cannot be written by user nobody, and must" in done.stderr
