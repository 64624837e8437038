# SPDX-License-Identifier: Apache-2.0
"""Assembling in a container: seccomp profiles of Docker and containerd forbid unshare(2)."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners: needs root"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter is written for x86_64"),
]

# seccomp(2): unshare is EPERM, all else is allowed. Then the same command as everywhere.
CONFINED = """
import ctypes, errno, os, struct, sys
from pathlib import Path
from cellblock.events import Events
from cellblock.jail.assemble import assemble

UNSHARE = 272
instruction = lambda code, true, false, value: struct.pack("<HBBI", code, true, false, value)
filter_ = ctypes.create_string_buffer(
    instruction(0x20, 0, 0, 0)  # the number of the call
    + instruction(0x15, 0, 1, UNSHARE)
    + instruction(0x06, 0, 0, 0x00050000 | errno.EPERM)
    + instruction(0x06, 0, 0, 0x7FFF0000)
)
program = struct.pack("<HxxxxxxQ", 4, ctypes.addressof(filter_))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
assert libc.unshare(0x200) == -1  # CLONE_FS
os.umask(0o022)
assemble(sys.argv[1], Path(sys.argv[2]), Events())
"""


def test_modes_are_right_although_threads_have_no_mask_of_their_own(small: Path, tmp_path: Path) -> None:
    modes = {"all": 0o666, "group": 0o660, "setgid": 0o2775, "mine": 0o600}
    for name, mode in modes.items():
        (small / name).write_text(name)
        (small / name).chmod(mode)
    (small / "folder").mkdir()
    (small / "folder").chmod(0o1777)
    subprocess.run([sys.executable, "-c", CONFINED, str(small), str(tmp_path / "volume")], check=True)
    root = tmp_path / "volume/root"
    assert {name: (root / name).stat().st_mode & 0o7777 for name in modes} == modes
    assert (root / "folder").stat().st_mode & 0o7777 == 0o1777
