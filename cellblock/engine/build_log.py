# SPDX-License-Identifier: Apache-2.0
"""Reads the messages that dockerd's classic builder sends, as steps and lines of output."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from cellblock.engine.recipe import StepReport
from cellblock.engine.stages import Instruction
from cellblock.process import TAIL_LINES

_STEP = re.compile(r"Step (\d+)/\d+ : ")
# The builder's own remarks: ids of intermediate containers and images, and whether its cache was used.
_REMARK = re.compile(r" ---> |Removing intermediate container |Successfully built ")
_RUNNING = re.compile(r" ---> Running in ([0-9a-f]+)")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class BuildLog:
    """Follows one build (Docker Engine API, `POST /build`); a context, which ends its last step.

    Instructions that serve one title in a row are one step of the report.
    """

    def __init__(self, instructions: Sequence[Instruction], report: StepReport) -> None:
        self.title = "begin"
        self.instruction = "docker build"
        self.at: tuple[str, ...] = ()
        """Where definitions ask for the instruction."""
        self.container = ""
        """Id of the container that the instruction runs in."""
        self.image = ""
        """Id of the image that was built last."""
        self.error = ""
        self.status = 1
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._instructions = instructions
        self._report = report
        self._step = ExitStack()
        self._rest = ""

    def __enter__(self) -> BuildLog:
        self._step.enter_context(self._report.step(self.title))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rest:
            self._line(self._rest)
        if self.error and error is None:
            # A step that failed did not end: nobody is told that it did.
            self._step.pop_all()
        else:
            self._step.__exit__(kind, error, trace)

    def entry(self, entry: Mapping[str, Any]) -> None:
        """Take one object of the stream."""
        if "stream" in entry:
            *lines, self._rest = (self._rest + entry["stream"]).split("\n")
            for line in lines:
                self._line(line)
        if "aux" in entry:
            self.image = entry["aux"].get("ID", self.image)
        if "error" in entry:
            self.error = entry["error"].strip()
            # The whole script stands in the message of a RUN that failed; the instruction is shown anyway.
            self.error = re.sub(r"The command '.*' returned", "it returned", self.error, flags=re.DOTALL)
            self.status = entry.get("errorDetail", {}).get("code", 1)

    def _line(self, line: str) -> None:
        text = _COLOURS.sub("", line).rstrip("\r")
        step = _STEP.match(text)
        if running := _RUNNING.match(text):
            self.container = running[1]
        if step:
            self._begin(int(step[1]))
        elif text.strip() and not _REMARK.match(text):
            self.tail.append(text)
            self._report.line(text)

    def _begin(self, number: int) -> None:
        if number > len(self._instructions):
            return
        instruction = self._instructions[number - 1]
        self.instruction = instruction.text
        self.at = instruction.at
        self.container = ""
        self.tail.clear()
        if instruction.title != self.title:
            self._step.close()
            self.title = instruction.title
            self._step = ExitStack()
            self._step.enter_context(self._report.step(self.title))
