# SPDX-License-Identifier: Apache-2.0
"""The last lines of `up`, on wide and on narrow terminals."""

from __future__ import annotations

from cellblock.cli.cluster import lines_of_steps

STEPS = {"build.py shell": "root's shell", "ssh -p 2222 root@127.0.0.1": "", "build.py down": "stop"}


def test_meanings_stand_beside_commands_where_there_is_room() -> None:
    beside = [
        "  build.py shell  root's shell",
        "  ssh -p 2222 root@127.0.0.1",
        "  build.py down   stop",
    ]
    assert lines_of_steps(STEPS, None) == beside
    assert lines_of_steps(STEPS, 30) == beside


def test_meanings_stand_below_on_a_narrow_terminal() -> None:
    assert lines_of_steps(STEPS, 29) == [
        "  build.py shell",
        "      root's shell",
        "  ssh -p 2222 root@127.0.0.1",
        "  build.py down",
        "      stop",
    ]
