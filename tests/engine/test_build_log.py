# SPDX-License-Identifier: Apache-2.0
"""dockerd's messages, read as steps, lines and errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cellblock.engine.build_log import BuildLog
from cellblock.engine.stages import Instruction

INSTRUCTIONS = (
    Instruction("FROM a AS b", "begin"),
    Instruction("RUN one", "install"),
    Instruction("COPY two", "lay"),
    Instruction("COPY three", "lay"),
)


class Report:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        self.seen.append(f"+{title}")
        yield
        self.seen.append(f"-{title}")

    def line(self, text: str) -> None:
        self.seen.append(text)


def follow(*entries: dict[str, object]) -> tuple[BuildLog, list[str]]:
    report = Report()
    log = BuildLog(INSTRUCTIONS, report)
    with log:
        for entry in entries:
            log.entry(entry)
    return log, report.seen


def test_instructions_of_one_title_are_one_step_and_remarks_no_output() -> None:
    log, seen = follow(
        {"stream": "Step 1/4 : FROM a AS b\n"},
        {"stream": "Step 2/4 : RUN one\n"},
        {"stream": " ---> Running in 0123\n"},
        {"stream": "hel"},
        {"stream": "lo\nworld\n"},
        {"stream": "Step 3/4 : COPY two\n ---> Using cache\n"},
        {"stream": "Step 4/4 : COPY three\n"},
        {"aux": {"ID": "sha256:f00"}},
        {"stream": "Successfully built f00\n"},
    )
    assert seen == ["+begin", "-begin", "+install", "hello", "world", "-install", "+lay", "-lay"]
    assert log.image == "sha256:f00"
    assert not log.error


def test_an_error_names_the_instruction_and_keeps_its_last_lines() -> None:
    log, seen = follow(
        {"stream": "Step 2/4 : RUN one\n"},
        {"stream": "\x1b[91mwrong\x1b[0m\n"},
        {
            "error": "The command '/bin/sh -c one\ntwo' returned a non-zero code: 9",
            "errorDetail": {"code": 9},
        },
    )
    assert (log.title, log.instruction, log.status) == ("install", "RUN one", 9)
    assert log.error == "it returned a non-zero code: 9"
    assert list(log.tail) == ["wrong"]
    assert "-install" not in seen
