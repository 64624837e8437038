# SPDX-License-Identifier: Apache-2.0
"""Looks at the processes of this machine, and skips one whose entry in /proc does not answer in time.

A process that executes a program holds a lock meanwhile, and whoever follows a link in its folder of /proc
waits for that lock. Any user can make this last for ever, with a file system of his own (FUSE) that does not
answer.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

PROC = Path("/proc")
# Seconds for one process, which answers in microseconds: a busy machine may let a thread wait that long.
_PATIENCE_S = 1.0
# Seconds to wait for silent processes, all together; later ones are hardly waited for.
_PATIENCE_FOR_ALL_S = 3.0
_LEAST_PATIENCE_S = 0.05
# Each silent process keeps a thread: a user who starts thousands gets no thousands of them.
_MOST_SILENT = 32

Found = TypeVar("Found")


@dataclass(frozen=True)
class Looked(Generic[Found]):
    """What was found of each process (a folder of /proc), and those that gave no answer in time."""

    found: dict[Path, Found]
    silent: tuple[Path, ...]


def all_processes() -> list[Path]:
    """The folder in /proc of each process that can be seen from here."""
    return [each for each in PROC.iterdir() if each.name.isdecimal()]


def look_at_each(processes: Iterable[Path], look: Callable[[Path], Found]) -> Looked[Found]:
    """Call `look` for each of `processes`, with a bound for each and for all.

    A thread that waits for ever is left behind: it ends with this process. When too many are silent, those
    that were not looked at yet count as silent, too.
    """
    left = list(processes)
    found: dict[Path, Found] = {}
    silent: list[Path] = []
    patience_s = _PATIENCE_FOR_ALL_S
    while left and len(silent) < _MOST_SILENT:
        answers: queue.SimpleQueue[tuple[Path, Found | Exception]] = queue.SimpleQueue()
        threading.Thread(target=_answer, args=(tuple(left), look, answers), daemon=True).start()
        while left:
            wait_s = max(_LEAST_PATIENCE_S, min(_PATIENCE_S, patience_s))
            try:
                process, answer = answers.get(timeout=wait_s)
            except queue.Empty:
                silent.append(left.pop(0))
                patience_s -= wait_s
                break
            left.pop(0)
            if isinstance(answer, Exception):
                raise answer
            found[process] = answer
    return Looked(found, (*silent, *left))


def _answer(
    processes: tuple[Path, ...],
    look: Callable[[Path], Found],
    answers: queue.SimpleQueue[tuple[Path, Found | Exception]],
) -> None:
    for process in processes:
        try:
            answers.put((process, look(process)))
        except Exception as error:
            answers.put((process, error))  # raised where somebody waits for it
            return
