# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C: Python raises it where its code begins to run, which is in a callback of the core."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.errors import CellblockError
from cellblock.jail.source.image_core import ImageError, LayerBytes, Pick, Target, assembling

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

    feeder = threading.Thread(target=feed)
    stopping = threading.Timer(60, ended.set)
    try:
        target = Target(root, 1, pick=Pick(array("Q"), wanted=True))
        with assembling([layer], target, lambda read: None, tmp_path) as assembly:
            stopping.start()
            feeder.start()
            with pytest.raises(KeyboardInterrupt):
                assembly.run()
    finally:
        ended.set()
        stopping.cancel()
        feeder.join()
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


@contextlib.contextmanager
def ctrl_c_in(seconds: float) -> Iterator[None]:
    """Ctrl-C after a while; what should be stopped by it stops in a few seconds."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    begun = time.monotonic()
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        timer.cancel()
    assert time.monotonic() - begun < seconds + 5


def run_one(root: Path, data: bytes | None) -> None:
    """Write a layer of these bytes; None: of a pipe that says nothing."""
    out, into = os.pipe()
    if data is not None:
        os.close(out)
        out = os.memfd_create("layer")
        os.write(out, data)
        os.lseek(out, 0, os.SEEK_SET)
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    layer = LayerBytes("layer", None, lambda: out)
    try:
        with assembling([layer], Target(folder, 1), lambda read: None, root.parent) as assembly:
            assembly.run()
    finally:
        os.close(into)
        os.close(folder)


def test_ctrl_c_while_a_hole_is_hashed(tmp_path: Path) -> None:
    """By the thread that writes, while the one that Python knows waits for it."""
    (tmp_path / "root").mkdir()
    with ctrl_c_in(0.5):
        run_one(tmp_path / "root", sparse_layer(60 << 30))


def test_ctrl_c_while_a_layer_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with ctrl_c_in(0.5):
        run_one(tmp_path / "root", None)


@pytest.mark.parametrize("size", [(64 << 30) + 512, 1 << 62])
def test_a_layer_does_not_claim_what_it_likes(tmp_path: Path, size: int) -> None:
    (tmp_path / "root").mkdir()
    with pytest.raises(ImageError, match=f"/sparse: claims {size} bytes of holes; .* 64 GiB") as caught:
        run_one(tmp_path / "root", sparse_layer(size))
    assert caught.value.fault == "limit"
    # It is not damaged: another copy of it would be the same.
    told = caught.value.for_users("the volume is as it was")
    assert isinstance(told, CellblockError)
    assert told.hint == "change the image, and run this again"


def test_nor_in_many_files(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    begun = time.monotonic()
    files = (sparse_layer(13 << 30, f"{number}/sparse")[:-1024] for number in range(1, 7))
    with pytest.raises(ImageError, match="/5/sparse: claims"):
        run_one(tmp_path / "root", b"".join(files))
    assert time.monotonic() - begun < 30


@pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps the owners of its files")
def test_ctrl_c_of_jail_assemble_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "layer.tar").write_bytes(sparse_layer(60 << 30))
    command = [sys.executable, "-m", "cellblock.cli", "jail", "assemble", str(tmp_path / "layer.tar")]
    with subprocess.Popen([*command, str(tmp_path / "volume")], stderr=subprocess.PIPE, text=True) as running:
        deadline = time.monotonic() + 30
        while not list(tmp_path.glob("volume/.cellblock/staging-*/root/sparse")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        begun = time.monotonic()
        said = running.communicate(timeout=60)[1]
    assert time.monotonic() - begun < 10
    assert running.returncode == 130, said
    assert "error: interrupted\n  next: run the same command again" in said


def sparse_layer(size: int, name: str = "sparse") -> bytes:
    """A tar of one file of `size` bytes, of which none is stored, as `tar -S --format=pax` writes it."""
    made = tarfile.TarInfo(f"GNUSparseFile.0/{name}")
    made.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": name,
        "GNU.sparse.realsize": str(size),
    }
    map_of_it = b"1\n%d\n0\n" % size
    made.size = 512
    with io.BytesIO() as out:
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            tar.addfile(made, io.BytesIO(map_of_it.ljust(512, b"\0")))
        whole = out.getvalue()
    return whole.rstrip(b"\0") + bytes(-len(whole.rstrip(b"\0")) % 512 + 1024)


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
