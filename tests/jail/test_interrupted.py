"""Ctrl-C: Python raises it where its code begins to run, which is in a callback of the core."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from array import array
from pathlib import Path

import pytest

from cellblock.jail.image_core import LayerBytes, Pick, Target, assembling

MANY = 4096
"""Headers, of 512 bytes each."""


def test_ctrl_c_stops_the_core_while_it_reads(tmp_path: Path) -> None:
    out, into = os.pipe()
    root = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    layer = LayerBytes("endless", None, lambda: out)
    ended = threading.Event()

    def feed() -> None:  # ends when the core closes its end
        with contextlib.suppress(BrokenPipeError):
            for number in itertools.count():
                if ended.is_set():
                    break
                if number == MANY:  # far more than a pipe holds: the core is at work
                    os.kill(os.getpid(), signal.SIGINT)
                os.write(into, HEADER)
        os.close(into)

    feeding = threading.Thread(target=feed)
    stopping = threading.Timer(60, ended.set)
    try:
        target = Target(root, 1, pick=Pick(array("Q"), wanted=True))
        with assembling([layer], target, lambda read: None, tmp_path) as assembly:
            stopping.start()
            feeding.start()
            with pytest.raises(KeyboardInterrupt):
                assembly.run()
    finally:
        ended.set()
        stopping.cancel()
        feeding.join()
        os.close(root)


def _header() -> bytes:
    """A tar's directory `a/`, again and again."""
    head = bytearray(512)
    head[:2], head[100:107], head[124:135], head[156:157] = b"a/", b"0000755", b"0" * 11, b"5"
    head[108:115] = head[116:123] = b"0" * 7
    head[136:147] = b"0" * 11
    head[257:265], head[148:156] = b"ustar\x0000", b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


HEADER = _header()


@pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps the owners of its files")
def test_ctrl_c_while_a_registry_is_silent_says_how_to_go_on(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        source = f"docker://127.0.0.1:{silent.getsockname()[1]}/jail:1"
        command = [
            sys.executable,
            "-m",
            "cellblock.cli",
            "jail",
            "assemble",
            source,
            str(tmp_path / "volume"),
        ]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running, silent.accept()[0]:
            running.send_signal(signal.SIGINT)  # it is connected, and waits for an answer
            said = running.communicate(timeout=60)[1]
    assert running.returncode == 130
    assert "error: interrupted\n  next: run the same command again" in said
    assert not (tmp_path / "volume/root").exists()
