# SPDX-License-Identifier: Apache-2.0
"""Makes the picture of a terminal in the README from what a real `up` printed.

    script -c "python3 build.py up --name NAME" /tmp/typescript
    .venv/bin/python -m cellblock.docs.terminal /tmp/typescript NAME

The first command records a terminal (script(1)). The second keeps the last state of the screen, without the
cluster's name, in docs/images/up.ansi, and draws docs/images/up.svg of it. A test draws it again, and another
compares the recording with what `up` prints.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from cellblock.paths import PROJECT

RECORDING = PROJECT / "docs" / "images" / "up.ansi"
PICTURE = PROJECT / "docs" / "images" / "up.svg"
_PROMPT = "\x1b[1m$ python3 build.py up\x1b[0m\n"
_WIDTH = 100
# rich's own template loads a font from elsewhere; this one takes the reader's.
_TEMPLATE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" width="{width}" height="{height}"
  xmlns="http://www.w3.org/2000/svg" role="img"
  aria-label="A terminal: build.py up builds images, starts a cluster and runs jobs in it">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, monospace; font-size: {char_height}px;
  line-height: {line_height}px; font-variant-east-asian: full-width }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g></svg>
"""


def last_screen(typescript: str, name: str) -> str:
    """What a terminal shows in the end: lines with their colours, the cluster's name left out."""
    lines = [line for line in typescript.replace("\r", "").split("\n") if not line.startswith("Script ")]
    text = "\n".join(lines).rpartition("\x1b[1A\x1b[2K")[2].replace("\x1b[2K", "").replace("\x1b[?25h", "")
    text = text.replace(f" --name {name}", "").replace(f"clusters/{name}/", "clusters/cellblock/")
    return align(re.sub(r"ssh -p \d+", "ssh -p 2222", text))


def align(text: str) -> str:
    """Put the explanations behind the commands of the last block under each other again."""
    head, mark, tail = text.partition("\nNext:\n")
    pairs = [re.fullmatch(r"  (\S.*?) {2,}(\S.*)", line) for line in tail.rstrip().split("\n")]
    width = max((len(pair[1]) for pair in pairs if pair), default=0)
    lines = [
        f"  {pair[1]:{width}}  {pair[2]}" if pair else line
        for pair, line in zip(pairs, tail.rstrip().split("\n"), strict=True)
    ]
    return f"{head}{mark}" + "\n".join(lines) + "\n"


def draw(recording: str) -> str:
    """The recording as an SVG picture that loads nothing."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    for line in (_PROMPT + recording).rstrip("\n").split("\n"):
        console.print(Text.from_ansi(line.rstrip()), overflow="crop", no_wrap=True)
    return console.export_svg(title="Cellblock", theme=MONOKAI, code_format=_TEMPLATE, unique_id="up")


if __name__ == "__main__":
    RECORDING.write_text(last_screen(Path(sys.argv[1]).read_text(errors="replace"), sys.argv[2]))
    PICTURE.write_text(draw(RECORDING.read_text()))
