# SPDX-License-Identifier: Apache-2.0
"""Rows and tables: whole in a file, and without a word cut on a narrow terminal."""

from __future__ import annotations

from cellblock.cli.rows import lines_of_rows, lines_of_table

ROWS = [("volume", "/var/lib/cellblock"), ("jail", "one two three four"), ("container", "a   running")]
TABLE = [("NAME", "STATE", "JAIL"), ("one", "ready", "/var/lib/one"), ("second", "-", "/var/lib/second")]


def test_rows_are_aligned_and_whole_where_there_is_no_terminal() -> None:
    assert lines_of_rows(ROWS, None) == [
        "  volume     /var/lib/cellblock",
        "  jail       one two three four",
        "  container  a   running",
    ]


def test_rows_break_between_words_and_a_path_stays_whole() -> None:
    assert lines_of_rows(ROWS, 24) == [
        "  volume     /var/lib/cellblock",
        "  jail       one two",
        "             three four",
        "  container  a   running",
    ]


def test_a_table_has_a_line_for_each_row() -> None:
    table = [
        "NAME    STATE  JAIL",
        "one     ready  /var/lib/one",
        "second  -      /var/lib/second",
    ]
    assert lines_of_table(TABLE, None) == table
    assert lines_of_table(TABLE, 30) == table


def test_a_table_is_a_list_in_a_terminal_that_is_too_narrow() -> None:
    assert lines_of_table(TABLE, 29) == [
        "one",
        "  STATE  ready",
        "  JAIL   /var/lib/one",
        "second",
        "  STATE  -",
        "  JAIL   /var/lib/second",
    ]
