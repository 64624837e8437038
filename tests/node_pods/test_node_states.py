# SPDX-License-Identifier: Apache-2.0
"""What follow-nodes makes of what slurmctld says of its nodes, and the files that it reads and writes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from cellblock_node_pods.node_requests import read_requests

from cellblock.paths import PROJECT

PROGRAMS = PROJECT / "images/controller/files/usr/lib/cellblock"
_LIBRARIES = "".join(f". {PROGRAMS}/{name}; " for name in ("node-requests.sh", "node-states.sh"))


def shell(script: str, *arguments: str, given: str = "", folder: Path | None = None) -> str:
    """What a script with both libraries prints."""
    done = subprocess.run(
        ["dash", "-euc", _LIBRARIES + script, "sh", *arguments],
        input=given,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "CELLBLOCK_NODE_PODS": str(folder or "/nowhere")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("state", "reason", "sorted_as"),
    [
        ("IDLE+CLOUD+POWERED_DOWN", "", "down 0"),
        ("IDLE+CLOUD+POWERING_DOWN", "", "down 0"),
        ("IDLE+CLOUD+POWERED_DOWN+POWER_UP", "", "up 0"),
        ("ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP", "", "up 0"),
        ("MIXED+CLOUD+POWERING_UP", "", "up 0"),
        ("IDLE+CLOUD", "", "serves 0"),
        ("ALLOCATED*+CLOUD", "", "serves 0"),
        ("MIXED+CLOUD+POWER_DOWN", "", "serves 0"),
        ("IDLE+CLOUD+DRAIN", "a person [root@1764171234]", "serves 1764171234"),
        ("IDLE+CLOUD+DRAIN+POWERED_DOWN", "a person [root@1764171234]", "left-down 1764171234"),
        ("DOWN+CLOUD", "a person [root@1764171234]", "left 1764171234"),
        ("DOWN+CLOUD+DRAIN", "[cellblock:pod] x [slurm@17]", "left 17"),
        ("DOWN+CLOUD+POWERING_UP", "[cellblock:pod] its pod is gone [slurm@1764171234]", "lost 1764171234"),
        ("DOWN+CLOUD+POWERED_DOWN", "ResumeTimeout reached [slurm@1764171234]", "lost 1764171234"),
        ("DOWN*+CLOUD+NOT_RESPONDING", "Not responding [slurm@1764171234]", "lost 1764171234"),
        ("DOWN+CLOUD+POWERING_DOWN", "Not responding [slurm@1764171234]", "down 1764171234"),
    ],
)
def test_states_of_nodes(state: str, reason: str, sorted_as: str) -> None:
    record = f"NodeName=gpu-1 Arch=x86_64 CPUTot=1 RealMemory=512 State={state} Comment=State=DOWN" + (
        f" Reason={reason}" if reason else ""
    )
    assert shell("sort_nodes", given=f"{record}\n").strip() == f"gpu-1 {sorted_as}"


def test_records_as_slurm_writes_them() -> None:
    """By 22.05.8 and 26.05.5, in full."""
    old = (
        "NodeName=burst-1 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=1 CPUTot=1 CPULoad=N/A "
        "AvailableFeatures=burst ActiveFeatures=burst Gres=(null) NodeAddr=burst-1 NodeHostName=burst-1  "
        "RealMemory=512 AllocMem=0 "
        "FreeMem=N/A Sockets=1 Boards=1 State=IDLE+CLOUD+POWERED_DOWN ThreadsPerCore=1 TmpDisk=0 Weight=1 "
        "Owner=N/A MCS_label=N/A Partitions=on_demand_burst,burst  BootTime=None SlurmdStartTime=None "
        "LastBusyTime=Unknown CfgTRES=cpu=1,mem=512M,billing=1 AllocTRES= CapWatts=n/a "
        "CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s"
    )
    new = (
        "NodeName=burst-2 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=1 CPUTot=1 CPULoad=0.00 "
        "AvailableFeatures=burst ActiveFeatures=burst Gres=(null) NodeAddr=burst-2 NodeHostName=burst-2  "
        "RealMemory=512 AllocMem=0 "
        "FreeMem=N/A Sockets=1 Boards=1 State=ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP ThreadsPerCore=1 "
        "TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=on_demand_burst,burst  BootTime=None "
        "SlurmdStartTime=None LastBusyTime=Unknown ResumeAfterTime=None SuspendTime=30 "
        "CfgTRES=cpu=1,mem=512M,billing=1 AllocTRES= CurrentWatts=0 AveWatts=0"
    )
    assert shell("sort_nodes", given=f"{old}\n{new}\n") == "burst-1 down 0\nburst-2 up 0\n"


@pytest.mark.parametrize(
    ("asked", "says", "then"),
    [
        ("down t", "up 0", ["want gpu-1 up"]),
        ("", "up 0", ["want gpu-1 up"]),
        ("up t", "up 0", []),
        ("serves t", "up 0", ["want gpu-1 up"]),
        ("up t", "serves 0", ["serving gpu-1", "want gpu-1 serves t"]),
        ("", "serves 0", ["serving gpu-1", "want gpu-1 serves "]),
        ("serves t", "serves 0", ["serving gpu-1"]),
        ("up t", "down 0", ["want gpu-1 down"]),
        ("serves t", "lost 9", ["lost gpu-1 9", "want gpu-1 down"]),
        ("down t", "lost 9", ["lost gpu-1 9"]),
        ("serves t", "left 9", []),
        ("serves t", "left-down 9", ["want gpu-1 down"]),
        ("down t", "down 0", []),
        ("serves t", None, ["want gpu-1 down"]),
    ],
)
def test_what_becomes_of_requests(asked: str, says: str | None, then: list[str]) -> None:
    requests = f"{asked} gpu-1\n" if asked else ""
    given = f"{requests}--\n" + (f"gpu-1 {says}\n" if says else "")
    assert shell('compare "" ""', given=given).splitlines() == then


def test_a_request_that_is_newer_than_the_answer_stays() -> None:
    assert shell('compare "gpu-1" ""', given="up t gpu-1\n--\ngpu-1 down 0\n") == ""
    assert shell('compare "gpu-1" ""', given="up t gpu-1\n--\n") == ""


def test_nodes_that_stay_are_started() -> None:
    given = "--\ngpu-1 down 0\ngpu-2 down 0\ngpu-3 left-down 5\n"
    actions = shell('compare "" "$1"', "gpu-1\ngpu-3", given=given).splitlines()
    assert [each for each in actions if each.startswith("start")] == ["start gpu-1"]


def test_requests_are_written_as_they_are_read(tmp_path: Path) -> None:
    shell("want up gpu-1; want up gpu-2; want serves gpu-2 t2; want down gpu-3", folder=tmp_path)
    found = read_requests(tmp_path, 0).nodes
    assert {node: one.state for node, one in found.items()} == {
        "gpu-1": "up",
        "gpu-2": "serves",
        "gpu-3": "down",
    }
    assert found["gpu-2"].token == "t2"
    assert len(found["gpu-1"].token) == 36
    assert (
        shell('request gpu-2; echo "$state $token"; request none; echo "$state."', folder=tmp_path)
        == "serves t2\n.\n"
    )


def test_failures_of_a_set_are_counted(tmp_path: Path) -> None:
    shell("count_failure gpu-1; count_failure gpu-2; count_failure big-gpu-1", folder=tmp_path)
    assert {one.name: one.read_text() for one in (tmp_path / "failures").iterdir()} == {
        "gpu": "2\n",
        "big-gpu": "1\n",
    }
