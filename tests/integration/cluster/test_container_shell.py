# SPDX-License-Identifier: Apache-2.0
"""Commands run as `podman exec` would run them, though one process starts them all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.integration.cluster.container_shell import ContainerShell, NotOver, NotStarted


@pytest.fixture
def shell() -> Iterator[ContainerShell]:
    """One of this machine."""
    shell = ContainerShell((), dict(os.environ))
    yield shell
    shell.close()


def test_status_output_and_errors_are_the_commands(shell: ContainerShell) -> None:
    assert shell.run(("sh", "-c", "echo out; echo err >&2; exit 3"), "", 60) == (3, "out\n", "err\n")
    assert shell.run(("true",), "", 60) == (0, "", "")


def test_words_arrive_as_they_are(shell: ContainerShell) -> None:
    words = ("a b", "", "$(x)", "'", "new\nline", "ü")
    status, out, _ = shell.run(("printf", "%s|", *words), "", 60)
    assert (status, out) == (0, "".join(f"{word}|" for word in words))


def test_input_of_any_size_comes_back(shell: ContainerShell) -> None:
    text = "line\n" * 500_000
    assert shell.run(("cat",), text, 60) == (0, text, "")


def test_without_input_a_command_reads_nothing(shell: ContainerShell) -> None:
    assert shell.run(("readlink", "/proc/self/fd/0"), "", 60)[1] == "/dev/null\n"


def test_input_that_nobody_reads_is_no_error(shell: ContainerShell) -> None:
    assert shell.run(("true",), "x" * 1_000_000, 60) == (0, "", "")


@pytest.mark.parametrize(
    ("deed", "status"), [("kill -TERM $$", 143), ("kill -PIPE $$", 141), ("exit 77", 77)]
)
def test_a_signal_is_128_and_its_number(deed: str, status: int, shell: ContainerShell) -> None:
    assert shell.run(("sh", "-c", deed), "", 60)[0] == status


def test_a_command_that_is_not_there_is_127(shell: ContainerShell) -> None:
    status, _, err = shell.run(("/no/such",), "", 60)
    assert status == 127
    assert "/no/such" in err
    assert shell.run(("/etc",), "", 60)[0] == 126


def test_the_end_is_that_of_the_command_and_not_of_what_it_leaves(shell: ContainerShell) -> None:
    # Of what it says, some is read after its end: of one in some dozens.
    for says in ["echo $!", *["head -c 200000 /dev/zero"] * 100]:
        begin = time.monotonic()
        assert shell.run(("sh", "-c", f"sleep 50 & {says}"), "", 60)[0] == 0
        assert time.monotonic() - begin < 20


def test_a_command_has_a_session_and_no_descriptor_of_the_shells(shell: ContainerShell) -> None:
    look = 'ls /proc/$$/fd; read -r p c s pp g sid rest </proc/$$/stat; [ "$sid" = $$ ] && echo own'
    # 10 is dash's.
    assert set(shell.run(("sh", "-c", look), "", 60)[1].split()) - {"10"} == {"0", "1", "2", "own"}


def test_what_is_not_over_says_what_it_said(shell: ContainerShell) -> None:
    with pytest.raises(NotOver, match="begins"):
        shell.run(("sh", "-c", "echo begins; exec sleep 3"), "", 1)


def test_where_no_process_more_is_allowed_the_command_fails_and_the_shell_goes_on() -> None:
    limited = ("prlimit", "--nproc=1", "setpriv", "--reuid", "4243", "--clear-groups")
    if os.geteuid() != 0:
        pytest.skip("root's processes become another user's")
    shell = ContainerShell(limited, dict(os.environ))
    for _ in range(2):
        status, out, err = shell.run(("echo", "ran"), "", 60)
        assert (status, out) == (125, "")
        assert err.startswith("fork: ")
    shell.close()


def test_a_shell_that_has_ended_runs_nothing() -> None:
    shell = ContainerShell(("sh", "-c", "exit", "sh"), dict(os.environ))
    with pytest.raises(NotStarted):
        shell.run(("true",), "x" * 1_000_000, 60)
    shell.close()
