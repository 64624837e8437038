# SPDX-License-Identifier: Apache-2.0
"""Ends a command quietly when nobody reads its output any more (`| head`), with exit status 141.

Standard library only: the launcher prints before anything is installed.
"""

from __future__ import annotations

import os
import select

EXIT_STATUS = 141
"""What a shell shows of a program that SIGPIPE (13) ended."""


def nobody_reads() -> bool:
    """Whether whoever read stdout or stderr is gone (`| head`)."""
    poll = select.poll()
    for descriptor in (1, 2):
        poll.register(descriptor, 0)  # POLLERR is always told
    try:
        return any(events & select.POLLERR for _, events in poll.poll(0))
    except OSError:
        return False


def end_quietly() -> int:
    """Have nothing more be said, not even by Python at its end; returns the status to end with."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    return EXIT_STATUS
