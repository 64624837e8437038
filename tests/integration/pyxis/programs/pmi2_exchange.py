# SPDX-License-Identifier: Apache-2.0
"""Exchanges a number with every other task by PMI-2's key-value space, and prints their sum.

The wire protocol of PMI-2 (MPICH's pmi2 document): "cmd=...;key=value;" behind six digits of length.
"""

from __future__ import annotations

import os
import sys

FD, RANK, JOB = int(os.environ["PMI_FD"]), int(os.environ["PMI_RANK"]), os.environ["PMI_JOBID"]


def read(length: int) -> str:
    text = b""
    while len(text) < length:
        text += os.read(FD, length - len(text))
    return text.decode()


def ask(command: str) -> dict[str, str]:
    os.write(FD, f"{len(command):6d}{command}".encode())
    answer = dict(part.split("=", 1) for part in read(int(read(6))).split(";") if "=" in part)
    assert answer["rc"] == "0", answer
    return answer


os.write(FD, b"cmd=init pmi_version=2 pmi_subversion=0\n")
while read(1) != "\n":
    pass
size = int(ask(f"cmd=fullinit;pmijobid={JOB};pmirank={RANK};threaded=FALSE;")["size"])
ask(f"cmd=kvs-put;key=of{RANK};value={RANK**2};")
ask("cmd=kvs-fence;")
total = sum(int(ask(f"cmd=kvs-get;jobid={JOB};srcid=-1;key=of{rank};")["value"]) for rank in range(size))
sys.stdout.write(f"rank {RANK} of {size} on {os.uname().nodename} sum {total}\n")
ask("cmd=finalize;")
