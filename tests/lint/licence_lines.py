# SPDX-License-Identifier: Apache-2.0
"""Finds sources without the line that names their licence; `python tests/lint/licence_lines.py` adds it."""

from __future__ import annotations

import subprocess
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
MARK = "SPDX-License-Identifier: Apache-2.0"
_C = (".c", ".h")
_HASH = (".py", ".pyi", ".sh", ".bash", ".mk")


def sources() -> list[Path]:
    """Every source of the repository: tracked, or new and not ignored."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=PROJECT, capture_output=True, check=True).stdout.decode().split("\0")
    paths = [PROJECT / name for name in names if name]
    return [path for path in paths if is_source(path) and path.is_file() and not path.is_symlink()]


def is_source(path: Path) -> bool:
    """By its name; an empty file has nothing to license."""
    named = path.suffix in (*_C, *_HASH) or path.name == "Makefile"
    return named and path.exists() and path.stat().st_size > 0


def has_line(path: Path) -> bool:
    """Whether one of the first three lines is the mark: a script begins with its interpreter."""
    return any(MARK in line for line in path.read_text().split("\n")[:3])


def with_line(path: Path, text: str) -> str:
    """The text with the mark in its first line, or in the second of a script."""
    line = f"/* {MARK} */\n" if path.suffix in _C else f"# {MARK}\n"
    if text.startswith("#!"):
        first, _, rest = text.partition("\n")
        return f"{first}\n{line}{rest}"
    return line + text


if __name__ == "__main__":
    for source in sources():
        if not has_line(source):
            source.write_text(with_line(source, source.read_text()))
