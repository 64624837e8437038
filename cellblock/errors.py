# SPDX-License-Identifier: Apache-2.0
"""Defines the errors that a user can meet.

Every one says what happened, where, and what to do next. Nothing below `cellblock.cli` prints or
exits: it raises one of these, and `cellblock.cli` turns it into one message and an exit status
(0 done, 1 failed, 2 wrong usage or definition).
"""

from __future__ import annotations

from pathlib import Path


class CellblockError(Exception):
    """Something failed. `hint` is the next step for the person who reads it.

    The message is a sentence without a final newline and without a "error:" prefix.
    """

    exit_status = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  next: {self.hint}" if self.hint else self.message


class NewerFormatError(CellblockError):
    """A file of a jail volume has a format that a later Cellblock writes. It is not damaged."""

    def __init__(self, path: Path, theirs: object, mine: object) -> None:
        super().__init__(
            f"{path} is of version {theirs}, and this Cellblock reads versions up to {mine}; "
            "nothing was changed",
            hint="use the Cellblock that wrote it, or a newer one",
        )


class UsageError(CellblockError):
    """The command line names something that does not exist or cannot be combined."""

    exit_status = 2


class DefinitionError(CellblockError):
    """A definition (YAML, template) is wrong; the message names file, line and key."""

    exit_status = 2
