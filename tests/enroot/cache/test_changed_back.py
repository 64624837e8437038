# SPDX-License-Identifier: Apache-2.0
"""A layer in another user's store that is wrong while it is read, and right when one looks why it failed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.enroot.cache.conftest import Node, sha256
from tests.enroot.cache.test_import import Registry, importer, program, registry
from tests.enroot.registry.images import make_image

__all__ = ("program", "registry")

# Mends the file once its first bytes were read, which are wrong. Each read waits for an answer (fanotify(7)):
# the second gets one after the file is right again, however late this program runs.
MENDER = """
import ctypes, os, struct, sys
name, right = sys.argv[1], open(sys.argv[1] + ".right", "rb").read()
FAN_CLASS_CONTENT, FAN_MARK_ADD, FAN_ACCESS_PERM, FAN_ALLOW, AT_FDCWD = 0x4, 0x1, 0x20000, 0x1, -100
libc = ctypes.CDLL(None, use_errno=True)
events = libc.fanotify_init(FAN_CLASS_CONTENT, os.O_RDONLY)
assert events >= 0, os.strerror(ctypes.get_errno())
mask = ctypes.c_uint64(FAN_ACCESS_PERM)
marked = libc.fanotify_mark(events, FAN_MARK_ADD, mask, AT_FDCWD, os.fsencode(name))
assert marked == 0, os.strerror(ctypes.get_errno())
file = os.open(name, os.O_WRONLY)
print("ready", flush=True)
reads = 0
while True:
    for _, _, _, _, _, opened, _ in struct.iter_unpack("=IBBHQii", os.read(events, 24)):
        reads += 1
        if reads == 2:
            os.pwrite(file, right, 0)
            print("mended", flush=True)
        os.write(events, struct.pack("=iI", opened, FAN_ALLOW))
        os.close(opened)
"""


@contextmanager
def mending(blob: Path, right: bytes) -> Iterator[subprocess.Popen[str]]:
    aside = blob.with_name(blob.name + ".right")
    aside.write_bytes(right)
    command = [sys.executable, "-c", MENDER, str(blob)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()
    aside.unlink()


@pytest.mark.parametrize("how", ["import", "load"])
def test_a_layer_that_another_user_changes_back_denies_nothing(
    node: Node, program: Path, registry: Registry, how: str
) -> None:
    image = registry.push("lab/x:1", make_image((300_000,)))
    a, b = importer(node.a, program), importer(node.b, program)
    b.imported(registry.uri("lab/x:1"), "b.sqsh")
    blob = b.shared_store / "blobs" / image.layers[0].digest.removeprefix("sha256:")
    right = blob.read_bytes()
    wrong = right[:4] + bytes(one ^ 1 for one in right[4:6]) + right[6:]
    mode = blob.stat().st_mode
    blob.chmod(0o600)
    blob.write_bytes(wrong)
    blob.chmod(mode)
    with mending(blob, right) as process:
        words = ("import", "-o", "a.sqsh") if how == "import" else ("load", "-n", "a")
        done = a(*words, registry.uri("lab/x:1"))
        assert process.stdout
        assert process.stdout.readline() == "mended\n"
    assert blob.read_bytes() == right
    assert done.returncode == 0, done.stderr
    assert "may have been changed meanwhile; once more without those" in done.stderr
    if how == "import":
        assert sha256(a.home / "a.sqsh") == sha256(b.home / "b.sqsh")
