# SPDX-License-Identifier: Apache-2.0
"""The checks that read the kernel's log, on recorded lines."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.spank_jail.node_health import Node
from tests.spank_jail.test_c_units import build, tools
from tests.spank_jail.test_node_checks import node

__all__ = ["build", "node", "tools"]  # fixtures

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as the checks do")

_PASSED, _FAILED, _COULD_NOT_RUN = 0, 1, 2
_LOG = "6,1,{when},-;usual\n{pri},2,{when},-;{text}\n"


@pytest.mark.parametrize(
    "text",
    [
        "mce: Uncorrected hardware memory error in user-access at 3f5a1000",
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Channel#0_DIMM#0",
        "I/O error, dev nvme0n1, sector 1234 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
        "EXT4-fs (sda1): Remounting filesystem read-only",
        "XFS (sdb): Filesystem has been shut down due to log error (0x2).",
        "XFS (dm-0): Metadata corruption detected at xfs_agf_read_verify+0x10, xfs_agf block 0x1",
        "EXT4-fs error (device nvme0n1p1): ext4_find_entry:1455: inode #2: reading directory",
        "Buffer I/O error on dev dm-0, logical block 0, lost async page write",
        "blk_update_request: I/O error, dev sda, sector 0 op 0x1:(WRITE) flags 0x800",
        "mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 0: b200000000000005",
        "Memory failure: 0x12345: recovery action for dirty LRU page: Recovered",
    ],
)
def test_faults_that_the_kernel_logs(node: Node, text: str) -> None:
    """of a recorded log: the machine that runs the tests has no such fault"""
    log = node.base / "kmsg"
    when = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    ask = f"source={log}"
    log.write_text(_LOG.format(pri=3, when=when, text=text))
    assert node.check("kernel-errors", ask) == (_FAILED, f"the kernel says: {text}")
    # It is told once.
    assert node.check("kernel-errors", ask) == (_PASSED, "")
    assert node.check("kernel-warnings", ask) == (_PASSED, "")


@pytest.mark.parametrize(
    ("pri", "text"),
    [
        # A user's program can have such a name, and write such words where it may.
        (6, "[Hardware Error[17]: segfault at 0 ip 0 sp 0 error 4"),
        (6, "EDAC MC0: 1 UE [17]: segfault at 0 ip 0 sp 0 error 4"),
        (6, "I/O error, dev [17]: segfault at 0 ip 0 sp 0 error 4"),
        # So can the file that it runs. Were it a warning, its start is not the kernel's all the same.
        (4, "I/O error, dev [17]: segfault at 0 ip 0 sp 0 error 6 in sda, sector 4[2,7f+10]"),
        (
            4,
            "EDAC MC[17]: segfault at 0 ip 0 sp 0 error 6 in  UE memory [2,7f+10]",
        ),
        (4, "XFS (sda1)[17]: segfault at 0 ip 0 sp 0 error 6 in Filesystem has been shut down[2,7f+1000]"),
        (6, "XFS (sda1): Filesystem has been shut down"),
        # Written to /dev/kmsg, not by the kernel: facility 1.
        (11, "mce: Uncorrected hardware memory error in user-access at 3f5a1000"),
        (3, "I/O error, dev loop0, sector 8"),
        (3, "Memory cgroup out of memory: Killed process 17 (a.out)"),
    ],
)
def test_what_is_no_fault_of_the_machine(node: Node, pri: int, text: str) -> None:
    log = node.base / "kmsg"
    when = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    log.write_text(_LOG.format(pri=pri, when=when, text=text))
    for check in ("kernel-errors", "kernel-warnings"):
        assert node.check(check, f"source={log}") == (_PASSED, "")


def test_a_warning_of_the_kernels_stays_for_an_hour(node: Node) -> None:
    log = node.base / "kmsg"
    when = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    text = "INFO: task nfsd:17 blocked for more than 120 seconds."
    log.write_text(_LOG.format(pri=3, when=when, text=text))
    assert node.check("kernel-warnings", f"source={log}") == (_FAILED, f"the kernel says: {text}")
    assert node.check("kernel-warnings", f"source={log}") == (_FAILED, f"the kernel said: {text}")
    assert node.check("kernel-warnings", f"source={log}", "hold=0") == (_PASSED, "")


def test_faults_of_long_ago_are_not_this_starts(node: Node) -> None:
    log = node.base / "kmsg"
    log.write_text(_LOG.format(pri=3, when=1, text="EXT4-fs (sda1): Remounting filesystem read-only"))
    assert node.check("kernel-errors", f"source={log}", "back=0") == (_PASSED, "")


@pytest.mark.parametrize("text", ["", "nonsense\n"])
def test_a_log_that_cannot_be_read(node: Node, text: str) -> None:
    assert node.check("kernel-errors", f"source={node.base}/none")[0] == _COULD_NOT_RUN
    (node.base / "kmsg").write_text(text)
    assert node.check("kernel-errors", f"source={node.base}/kmsg")[0] == _COULD_NOT_RUN


def test_a_program_that_imitates_the_kernel_drains_nothing(node: Node, tmp_path: Path) -> None:
    """by its own name and that of the file it runs, which the kernel logs of a real segmentation fault"""
    ask = ("source=/dev/kmsg", "back=1")
    if node.check("kernel-errors", *ask)[0] == _COULD_NOT_RUN:
        pytest.skip("the kernel's log is not to be read here")
    program = tmp_path / "segfault_line"
    subprocess.run(["gcc", "-o", program, Path(__file__).with_name("segfault_line.c")], check=True)
    for name, file in (("I/O error, dev ", "sda, sector 4"), ("XFS (sda1)", "Filesystem has been shut down")):
        assert subprocess.run([program, name, file], check=False).returncode == -signal.SIGSEGV
        assert node.check("kernel-errors", *ask) == (_PASSED, "")
