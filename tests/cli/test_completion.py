# SPDX-License-Identifier: Apache-2.0
"""Completion as a person has it: installed by the command of the README, then typed to a real shell."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cellblock.paths import PROJECT

_SHELLS = {"bash": ["bash", "-i"], "zsh": ["zsh", "-i"], "fish": ["fish", "-i"]}
# Seconds: a shell that starts for the first time, and build.py behind each TAB.
_TIMEOUT_S = 15


def install(shell: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cellblock.cli", "--install-completion", shell],
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )


class Terminal:
    """A shell on a terminal of its own."""

    def __init__(self, shell: str, home: Path) -> None:
        # Of the machine, but PATH: python3 is to be the one that runs the tests.
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {"HOME": str(home), "PATH": path, "TERM": "xterm", "PS1": "> ", "ZDOTDIR": str(home)}
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.chdir(PROJECT)
            os.execvpe(_SHELLS[shell][0], _SHELLS[shell], environment)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait(self, text: str) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while text not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0, f"no {text!r} in {self.seen!r}"
            if select.select([self._fd], [], [], min(left, 1))[0]:
                self.seen += os.read(self._fd, 65536).decode(errors="replace")
                # fish asks the terminal who it is (DA1), and waits for the answer.
                if "\x1b[c" in self.seen or "\x1b[0c" in self.seen:
                    self.type("\x1b[?62c")
                    self.seen = self.seen.replace("\x1b[c", "").replace("\x1b[0c", "")

    def quiet(self, seconds: float) -> None:
        """Wait until nothing more comes."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if select.select([self._fd], [], [], 0.1)[0]:
                self.seen += os.read(self._fd, 65536).decode(errors="replace")
                until = time.monotonic() + seconds

    def close(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.close(self._fd)
        os.waitpid(self._pid, 0)


@pytest.mark.parametrize("program", ["python3 build.py", "./build.py", f"python3 {PROJECT}/build.py"])
@pytest.mark.parametrize("shell", list(_SHELLS))
def test_tab_completes_what_all_pages_say(shell: str, program: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: apt-get install {shell}")
    (tmp_path / ".zshrc").write_text("autoload -Uz compinit && compinit -u\n")
    done = install(shell, tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{shell} completion is installed in {tmp_path}" in done.stdout
    terminal = Terminal(shell, tmp_path)
    try:
        terminal.type("echo re''ady\n")
        terminal.wait("ready")
        terminal.quiet(1)
        terminal.seen = ""
        terminal.type(f"{program} why wor\t")
        terminal.wait("worker")
        terminal.quiet(1)
        # The line as the shell has it: in the place of running it, have it said.
        terminal.type("\x01echo sa''id \n")
        terminal.wait(f"said {program} why worker")
    finally:
        terminal.close()


def test_others_programs_of_python_are_not_run(tmp_path: Path) -> None:
    """TAB behind another project's build.py must not build that project."""
    install("bash", tmp_path)
    other = tmp_path / "build.py"
    other.write_text(f"open('{tmp_path}/ran', 'w')\n")
    script = tmp_path / ".bash_completions" / "build.py.sh"
    lines = f"""
        source {script}
        COMP_WORDS=(python3 {other} bu) COMP_CWORD=2
        _cellblock_completion python3
        echo "${{#COMPREPLY[@]}}"
        complete -p python3
    """
    done = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, check=True)
    assert done.stdout == "0\ncomplete -o default -F _cellblock_completion python3\n"
    assert not (tmp_path / "ran").exists()


def test_installing_twice_changes_nothing_and_keeps_what_is_there(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("alias ll='ls -l'")
    install("bash", tmp_path)
    once = (tmp_path / ".bashrc").read_text()
    assert once == f"alias ll='ls -l'\nsource '{tmp_path}/.bash_completions/build.py.sh'\n"
    install("bash", tmp_path)
    assert (tmp_path / ".bashrc").read_text() == once
