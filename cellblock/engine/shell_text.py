# SPDX-License-Identifier: Apache-2.0
"""Writes shell lines as the text of one RUN instruction, in a form that every builder reads alike.

In a Containerfile a RUN is one logical line: its physical lines are joined, empty ones dropped, and those
that begin with `#` taken for comments. Only BuildKit and recent buildah know heredocs, and BuildKit looks
for them in any RUN.
"""

from __future__ import annotations

import re
import subprocess
import textwrap
from collections.abc import Sequence

# What may not stand bare before "; \": a comment would swallow the rest, `<<` would begin a heredoc, and
# after these last characters a semicolon is an error or changes the meaning.
_BARE = re.compile(r"(?!.*<<)[^\n\r#]*[^\n\r#;&|\\\s]")


def statements(lines: Sequence[str]) -> list[str]:
    """`lines`, which a shell would read one after the other, as statements to be joined by semicolons.

    One that spans lines, or would mean something else inside a RUN, is quoted and handed to `eval`.
    """
    if not all(map(_complete, lines)):
        # Items that only make sense together, such as an `if` and its `fi`.
        return [_evaluated("\n".join(lines))]
    return [line if _BARE.fullmatch(line) else _evaluated(line) for line in lines]


def quoted(text: str) -> str:
    """`text` as one word of a shell (sh(1), quoting)."""
    if re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def run(items: Sequence[str]) -> str:
    """The arguments of a RUN that carries out `items`, one a line, and ends with the first that fails."""
    return "; \\\n    ".join(["set -eu", *items])


def one_a_line(words: Sequence[str]) -> str:
    """`words` of one command, each on a line of its own; to be appended to the command."""
    return "".join(f" \\\n      {quoted(word)}" for word in words)


def wrapped(text: str) -> str:
    """`text`, which holds no quoted spaces, on lines that a person can read."""
    lines = textwrap.wrap(text, 100, break_long_words=False, break_on_hyphens=False)
    return " \\\n      ".join(lines)


def _evaluated(text: str) -> str:
    lines = one_a_line(text.splitlines())
    return f"""eval "$(printf '%s\\n'{lines})\""""


def _complete(text: str) -> bool:
    """Whether a shell reads `text` as whole commands; one that is wrong anywhere counts as incomplete."""
    check = subprocess.run(
        ["sh", "-n", "-c", text], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return check.returncode == 0
