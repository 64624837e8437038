# SPDX-License-Identifier: Apache-2.0
"""Shell lines do in one RUN instruction what they do in a shell."""

from __future__ import annotations

import subprocess

import pytest

from cellblock.engine import shell_text


def output(script: str) -> tuple[int, str]:
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def as_builders_read(text: str) -> str:
    """A RUN's arguments after a builder joined its lines and dropped comments and empty ones."""
    lines = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    return "\n".join(lines).replace("\\\n", "")


@pytest.mark.parametrize(
    "lines",
    [
        ("echo one", "echo two"),
        ("x='a;b'", 'echo "$x" \'$x\' "$((1 << 2))"'),
        ("echo one  # said", "echo two"),
        ("# a comment alone", "echo one"),
        ("if true; then", "  echo yes", "fi"),
        ("case x in\n  x) echo '#1' ;;\n\n  # nothing\nesac", "echo two"),
        ('cat <<END\n it\'s \\\\ "$HOME"\n#kept\n\nEND', "echo after"),
        ("echo a \\\n  b", "sleep 0 &", "wait", "echo c |", "cat"),
        ("echo 'back\\slash' \"tab\\t\"", "false", "echo never"),
        ("cd /tmp", "pwd", "exit 7"),
        ("echo 'ends with a backslash\\'",),
    ],
)
def test_lines_do_in_a_run_what_they_do_in_a_shell(lines: tuple[str, ...]) -> None:
    text = as_builders_read(shell_text.run(shell_text.statements(lines)))
    assert "\n" not in text
    expected = subprocess.run(["sh", "-euc", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert output(text) == (expected.returncode, expected.stdout)


def test_plain_lines_stay_as_they_are_written() -> None:
    assert shell_text.statements(["rm -f /a", 'echo "$(date)"']) == ["rm -f /a", 'echo "$(date)"']


def test_nothing_that_buildkit_takes_for_a_heredoc_stands_bare() -> None:
    (statement,) = shell_text.statements(["cat <<END\nx\nEND"])
    assert statement.startswith("eval ")
    assert "'cat <<END'" in statement


@pytest.mark.parametrize("word", ["plain", "two words", "it's", "$HOME", "a\\b", ""])
def test_a_quoted_word_is_one_word(word: str) -> None:
    assert output(f"printf %s {shell_text.quoted(word)}") == (0, word)
