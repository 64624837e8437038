# SPDX-License-Identifier: Apache-2.0
"""The proof: what counts, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from cellblock.cluster import proof, proof_user, prove
from cellblock.cluster.facts import state
from cellblock.errors import CellblockError
from cellblock.events import Events
from tests.cluster.fake_engine import FakeContainer, FakeEngine

BOTH = "worker-2 Debian GNU/Linux 13 (trixie)\nworker-1 Debian GNU/Linux 13 (trixie)\n"


Answer = Callable[[FakeContainer, list[str]], tuple[int, str]]


ENTRY = "cellblock:x:1000:1000:::/bin/bash\n"


def ensured(container: FakeContainer, command: list[str]) -> tuple[int, str] | None:
    """The answer about the user of the proof, when the command asks for it."""
    if container.name == "cellblock-test-controller" or command[0] == "timeout":
        return 0, ENTRY
    return None


def serve(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    """A cluster whose login node answers so; the proof's number is "line"."""
    engine = FakeEngine(on_exec=answer)
    for node in ("controller", "login"):
        engine.containers.create("image", name=f"cellblock-test-{node}", labels={})

    @contextmanager
    def connect(name: str) -> Iterator[FakeEngine]:
        yield engine

    monkeypatch.setattr(proof, "connect", connect)
    monkeypatch.setattr(proof.secrets, "token_hex", lambda size: "line")
    with state.locked("test"):
        nodes = ["worker-1", "worker-2"]
        state.write(
            state.ClusterState("test", "debian13", "24.11", "podman", nodes, nodes, 2222, "/volume", "f")
        )


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, str]]:
    """What the login node's commands print, by a word that tells them apart."""
    given = {
        "--nodes=2": (0, BOTH),
        "worker-1": (0, "line\n"),
        "worker-2": (0, "line\n"),
        "cat": (0, "line\n"),
    }

    def answer(container: FakeContainer, command: list[str]) -> tuple[int, str]:
        about_user = ensured(container, command)
        if about_user:
            return given.get("getent", about_user)
        assert container.name == "cellblock-test-login"
        assert command[0] == "jail-enter"
        assert command[command.index("--user") + 1] == "cellblock"
        text = " ".join(command)
        return next((answer for word, answer in given.items() if word in text), (0, ""))

    serve(monkeypatch, answer)
    return given


def test_both_workers_one_file_and_the_login_node(answers: dict[str, tuple[int, str]]) -> None:
    shown = prove("test", Events())
    trixie = "Debian GNU/Linux 13 (trixie)"
    assert shown.workers == {"worker-1": trixie, "worker-2": trixie}
    assert (shown.writer, shown.reader) == ("worker-1", "worker-2")
    assert shown.written == shown.read == shown.login == "line"


def wrong_login(answers: dict[str, tuple[int, str]]) -> None:
    answers["cat"] = (0, "other\n")
    answers["worker-2"] = (0, "line\n")


def one_worker(answers: dict[str, tuple[int, str]]) -> None:
    answers["--nodes=2"] = (0, "worker-1 Debian\n")


def failing_job(answers: dict[str, tuple[int, str]]) -> None:
    answers["--nodes=2"] = (1, "srun: error: no jail\n")


def user_not_made(answers: dict[str, tuple[int, str]]) -> None:
    answers["getent"] = (1, "the jail has no useradd (package passwd)\n")


def system_user(answers: dict[str, tuple[int, str]]) -> None:
    answers["getent"] = (0, "cellblock:x:0:0:::/bin/sh\n")


def odd_name_service(answers: dict[str, tuple[int, str]]) -> None:
    answers["getent"] = (0, "cellblock:x:lots\n")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (wrong_login, "the jail is not shared"),
        (one_worker, "ran on 1 of 2 workers"),
        (failing_job, "srun: error: no jail"),
        (user_not_made, r"user cellblock, .* cannot be made in the jail: status 1: the jail has no useradd"),
        (system_user, "user cellblock of the jail has uid 0, a system user's"),
        (odd_name_service, "printed no line of passwd"),
    ],
)
def test_anything_else_is_an_error(
    answers: dict[str, tuple[int, str]], spoil: Callable[[dict[str, tuple[int, str]]], None], message: str
) -> None:
    spoil(answers)
    with pytest.raises(CellblockError, match=message):
        prove("test", Events())


def test_a_user_whom_the_controller_never_knows_is_an_error(
    answers: dict[str, tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof_user, "_KNOWN_S", 0.1)
    monkeypatch.setattr(proof_user, "succeeds", lambda *given: False)
    with pytest.raises(CellblockError, match="the controller does not know user cellblock"):
        prove("test", Events())
