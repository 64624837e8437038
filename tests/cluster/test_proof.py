"""The proof: what counts, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from cellblock.cluster import proof, prove, state
from cellblock.errors import CellblockError
from cellblock.events import Events
from tests.cluster.fake_engine import FakeContainer, FakeEngine

BOTH = "worker-2 Debian GNU/Linux 13 (trixie)\nworker-1 Debian GNU/Linux 13 (trixie)\n"


Answer = Callable[[FakeContainer, list[str]], tuple[int, str]]


def serve(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    """A cluster whose login node answers so; the proof's number is "line"."""
    engine = FakeEngine(on_exec=answer)
    engine.containers.create("image", name="cellblock-test-login", labels={})

    @contextmanager
    def connect(name: str) -> Iterator[FakeEngine]:
        yield engine

    monkeypatch.setattr(proof, "connect", connect)
    monkeypatch.setattr(proof.secrets, "token_hex", lambda size: "line")
    with state.locked("test"):
        state.write(state.ClusterState("test", "debian13", "24.11", "podman", 2, 2222, "/volume", "f"))


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
        assert container.name == "cellblock-test-login"
        assert command[0] == "jail-enter"
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


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (wrong_login, "the jail is not shared"),
        (one_worker, "ran on 1 of 2 workers"),
        (failing_job, "srun: error: no jail"),
    ],
)
def test_anything_else_is_an_error(
    answers: dict[str, tuple[int, str]], spoil: Callable[[dict[str, tuple[int, str]]], None], message: str
) -> None:
    spoil(answers)
    with pytest.raises(CellblockError, match=message):
        prove("test", Events())


def test_what_an_engine_lost_of_an_output_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, int] = {}

    def answer(container: FakeContainer, command: list[str]) -> tuple[int, str]:
        text = " ".join(command)
        if "--nodes=2" in text:
            return 0, BOTH
        asked[text] = asked.get(text, 0) + 1
        return 0, "line\n" if "cat" in command and asked[text] == 2 else ""

    serve(monkeypatch, answer)
    shown = prove("test", Events())
    assert shown.written == shown.read == shown.login == "line"
    assert max(count for text, count in asked.items() if "set -C" in text) == 1, "written twice"
