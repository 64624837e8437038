# SPDX-License-Identifier: Apache-2.0
"""Text is broken between words; commands that one copies stay whole."""

from __future__ import annotations

from cellblock.text.lines import broken


def test_text_without_a_width_is_one_line() -> None:
    assert broken("one  two", None) == ["one  two"]


def test_a_line_that_fits_keeps_its_spaces() -> None:
    assert broken("one  two", 8) == ["one  two"]


def test_it_breaks_between_words() -> None:
    assert broken("one two three four", 9) == ["one two", "three", "four"]


def test_a_command_and_what_follows_it_stay_whole() -> None:
    assert broken("first `build.py down --name x`, then more", 16) == [
        "first",
        "`build.py down --name x`,",
        "then more",
    ]


def test_what_follows_is_indented_and_the_first_line_keeps_its_own() -> None:
    assert broken("  next: one two three", 13, 8) == ["  next: one", "        two", "        three"]


def test_the_first_words_do_not_stand_alone() -> None:
    assert broken("  next: `a long command` more", 12, 8) == ["  next: `a long command`", "        more"]
