# SPDX-License-Identifier: Apache-2.0
"""Completes commands in a shell, also after `python3 build.py`: `--install-completion`, `--show-completion`.

typer computes the completions. Its own scripts complete `./build.py` only, but the documentation says
`python3 build.py`, so this module writes scripts for bash, zsh and fish. Other shells get typer's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from cellblock.errors import UsageError

_INSTALL, _SHOW = "--install-completion", "--show-completion"
# Where each shell reads it from, below the home directory, and the file that has to name it, if one has to.
_PLACES = {
    "bash": (".bash_completions/build.py.sh", ".bashrc"),
    "zsh": (".zfunc/cellblock.zsh", ".zshrc"),
    "fish": (".config/fish/conf.d/cellblock.fish", None),
}
_SCRIPTS = {"bash": "bash.sh", "zsh": "zsh.zsh", "fish": "fish.fish"}


def asked(args: list[str], environment: Mapping[str, str] = os.environ) -> str | None:
    """What to print for `args`; None: they ask for no completion, or for that of a shell only typer knows.

    Installs it when asked to. Raises UsageError when the shell cannot be told, OSError when it cannot be
    written.
    """
    if not args or args[0] not in (_INSTALL, _SHOW) or len(args) > 2:
        return None
    shell = args[1] if len(args) == 2 else Path(environment.get("SHELL", "")).name
    if not shell:
        raise UsageError(
            "which shell is this? SHELL is not set", hint=f"say it: build.py {args[0]} {'|'.join(_SCRIPTS)}"
        )
    if shell not in _SCRIPTS:
        return None
    script = files("cellblock.cli").joinpath(f"completion_scripts/{_SCRIPTS[shell]}").read_text("utf-8")
    if args[0] == _SHOW:
        return script
    place, named_in = (Path.home() / path if path else None for path in _PLACES[shell])
    assert place
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(script, encoding="utf-8")
    if named_in:
        line = f"source '{place}'"
        text = named_in.read_text(encoding="utf-8") if named_in.is_file() else ""
        if line not in text.splitlines():
            start = text if not text or text.endswith("\n") else f"{text}\n"
            named_in.write_text(f"{start}{line}\n", encoding="utf-8")
    return f"{shell} completion is installed in {place}; it takes effect in new shells\n"
