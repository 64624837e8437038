# SPDX-License-Identifier: Apache-2.0
"""The checks of GPUs, on what nvidia-smi and its driver's log say.

All of it was written from NVIDIA's documentation (nvidia-smi(1), the catalogue of Xid errors): no machine
that runs the tests has a GPU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.spank_jail.node_health import Node
from tests.spank_jail.test_c_units import build, make, tools
from tests.spank_jail.test_node_checks import node

__all__ = ["build", "node", "tools"]  # fixtures

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as the checks do")

_PASSED, _FAILED, _COULD_NOT_RUN = 0, 1, 2
_ONE, _TWO = "00000000:3B:00.0", "00000000:D8:00.0"
# Option of nvidia-smi -> what it prints about two GPUs that are well.
WELL = {
    "--query-gpu=index,name,pci.bus_id": (
        f"0, NVIDIA A100-SXM4-40GB, {_ONE}\n1, NVIDIA A100-SXM4-40GB, {_TWO}\n"
    ),
    "--query-gpu=pci.bus_id,ecc.errors.uncorrected.volatile.total": f"{_ONE}, 0\n{_TWO}, [N/A]\n",
    "--query-remapped-rows=gpu_bus_id,remapped_rows.failure": f"{_ONE}, No\n{_TWO}, 0\n",
    (
        "--query-gpu=pci.bus_id,pcie.link.width.current,pcie.link.width.max,pcie.link.gen.current,"
        "pcie.link.gen.max,pstate"
    ): (f"{_ONE}, 16, 16, 1, 4, P8\n{_TWO}, 16, 16, 4, 4, P0\n"),
    "nvlink": (
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5a5c)\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n"
        "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-77f0)\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n"
    ),
    "--query-gpu=pci.bus_id,persistence_mode,clocks_throttle_reasons.hw_slowdown": (
        f"{_ONE}, Enabled, Not Active\n{_TWO}, Enabled, Not Active\n"
    ),
    "--query-remapped-rows=gpu_bus_id,remapped_rows.pending": f"{_ONE}, No\n{_TWO}, No\n",
    "--query-compute-apps=gpu_bus_id,pid": "",
}
CHECKS = ("gpu", "gpu-errors", "gpu-links", "gpu-state")


def ask(node: Node, check: str, gres: str = "gpu:a100:2", script: str = "", **said: str) -> tuple[int, str]:
    """A check on a node that declares `gres`, where nvidia-smi is `script`, or prints WELL and `said`."""
    folder = node.base / "smi"
    folder.mkdir(exist_ok=True)
    answers = {**WELL, **{key: text for key, text in said.items() if key in WELL}}
    cases = "\n".join(f"'{option}') cat {folder}/{number};;" for number, option in enumerate(answers))
    for number, text in enumerate(answers.values()):
        (folder / str(number)).write_text(text)
    smi = folder / "nvidia-smi"
    smi.write_text(f'#!/bin/sh\n{script}\ncase "$1" in\n{cases}\n*) echo unknown; exit 2;; esac\n')
    smi.chmod(0o755)
    facts = folder / "facts"
    facts.write_text(f"node=Feature=worker RealMemory=1 Gres={gres}\n" if gres else "node=Feature=worker\n")
    return node.check(check, f"smi={smi}", f"facts={facts}", "answer=2", f"sockets={os.devnull}")


def of(start: str) -> str:
    """The option of nvidia-smi that begins or ends so."""
    (found,) = [option for option in WELL if option.endswith(start)]
    return found


@pytest.mark.parametrize("check", CHECKS)
def test_gpus_that_are_well(node: Node, check: str) -> None:
    assert ask(node, check) == (_PASSED, "")


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("gres", ["", "fpga:2"])
def test_a_node_that_declares_none(node: Node, check: str, gres: str) -> None:
    assert ask(node, check, gres) == (_COULD_NOT_RUN, "this node declares no GPUs")


@pytest.mark.parametrize("check", CHECKS)
def test_what_is_no_answer(node: Node, check: str) -> None:
    """a driver that does not answer is a fault; a tool that is missing, or another's output, is none"""
    broken = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    status, said = ask(node, check, script=f'echo "{broken}"; exit 9')
    assert (status, said) == (_FAILED, f"the driver does not answer: nvidia-smi, status 9: {broken}")
    assert ask(node, check, script="exit 127")[0] == _COULD_NOT_RUN
    field = 'Field "x" is not a valid field to query.'
    assert ask(node, check, script=f"echo '{field}'; exit 2")[0] == _COULD_NOT_RUN
    assert ask(node, check, script="echo 'a, b, c, d, e, f, g, h'; exit 0")[0] == _COULD_NOT_RUN
    hung = ask(node, check, script="sleep 60")
    assert hung == (_FAILED, "the GPUs' driver does not answer for 2 s")


@pytest.mark.parametrize(
    ("gres", "status", "said"),
    [
        ("gpu:2", _PASSED, ""),
        ("gpu:nvidia_a100-sxm4-40gb:2", _PASSED, ""),
        ("gpu:a100:1,fpga:4", _PASSED, ""),
        ("gpu:a100:4", _FAILED, "2 of 4 GPUs that the node declares are there"),
        ("gpu:h100:2", _FAILED, "GPU 0 is a NVIDIA A100-SXM4-40GB, and the node declares h100"),
    ],
)
def test_as_many_as_are_declared(node: Node, gres: str, status: int, said: str) -> None:
    assert ask(node, "gpu", gres) == (status, said)


@pytest.mark.parametrize(
    ("check", "option", "text", "said"),
    [
        (
            "gpu-errors",
            "volatile.total",
            f"{_ONE}, 0\n{_TWO}, 3\n",
            f"GPU {_TWO} has had 3 uncorrected memory errors",
        ),
        ("gpu-errors", "rows.failure", f"{_ONE}, Yes\n", f"GPU {_ONE} could not replace a row"),
        ("gpu-links", "pstate", f"{_ONE}, 8, 16, 4, 4, P0\n", f"GPU {_ONE} has 8 lanes of PCIe, of 16"),
        ("gpu-links", "pstate", f"{_ONE}, 16, 16, 1, 4, P0\n", f"GPU {_ONE} has PCIe 1 at full speed"),
        (
            "gpu-links",
            "nvlink",
            "GPU 0: A (U)\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n",
            "GPU 0: Link 1 of NVLink",
        ),
        (
            "gpu-state",
            "hw_slowdown",
            f"{_ONE}, Disabled, Not Active\n",
            f"GPU {_ONE} has no persistence mode",
        ),
        ("gpu-state", "hw_slowdown", f"{_ONE}, Enabled, Active\n", f"GPU {_ONE} is slowed by its hardware"),
        ("gpu-state", "rows.pending", f"{_ONE}, Yes\n", f"GPU {_ONE} replaces a row of its memory"),
        ("gpu-state", "gpu_bus_id,pid", f"{_ONE}, 4711\n", f"no job runs, and process 4711 has GPU {_ONE}"),
    ],
)
def test_faults(node: Node, check: str, option: str, text: str, said: str) -> None:
    status, line = ask(node, check, **{of(option): text})
    assert status == _FAILED
    assert line.startswith(said)


def test_gpus_without_a_bridge(node: Node) -> None:
    text = "GPU 0: A (U)\n\t Link 0: <inactive>\n\t Link 1: <inactive>\n"
    assert ask(node, "gpu-links", nvlink=text) == (_PASSED, "")


@pytest.mark.parametrize(
    ("text", "drains", "warns"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=a.out, GPU has fallen off the bus.", True, False),
        ("NVRM: Xid (PCI:0000:3b:00): 48, pid=1234, An uncorrectable double bit error (DBE)", True, False),
        ("NVRM: Xid (PCI:0000:d8:00): 94, pid=99, name=python3, Contained: SM (0x1). RST: No", False, True),
        # Faults of a user's program.
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=a.out, Ch 00000008, MMU Fault", False, False),
        ("NVRM: Xid (PCI:0000:3b:00): 13, pid=1234, Graphics SM Warp Exception", False, False),
        # A program with such a name, in a file with such a name.
        ("NVRM: Xid (PCI:[17]: segfault at 0 ip 0 sp 0 error 4 in x): 79, pid=1[4000+1000]", False, False),
    ],
)
def test_what_the_driver_logs(node: Node, text: str, drains: bool, warns: bool) -> None:
    log = node.base / "kmsg"
    when = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6)
    log.write_text(f"6,1,{when},-;usual\n3,2,{when},-;{text}\n")
    for check, fails in (("gpu-xid", drains), ("gpu-xid-warnings", warns)):
        expected = (_FAILED, f"the kernel says: {text}") if fails else (_PASSED, "")
        assert node.check(check, f"source={log}") == expected


def test_what_measures_gpus_says_whether_it_could(build: Path) -> None:
    """compiled by CUDA's compiler; right results, or that there is no GPU"""
    if not shutil.which("nvcc"):
        pytest.skip("nvcc is not installed")
    done = make(build, "gpu-speed")
    assert done.returncode == 0, done.stdout + done.stderr
    said = subprocess.run([build / "gpu-speed"], capture_output=True, text=True, timeout=300)
    gpus = subprocess.run(["nvidia-smi", "-L"], capture_output=True) if shutil.which("nvidia-smi") else None
    if gpus and gpus.returncode == 0:
        assert said.returncode == 0, said.stdout
        assert said.stdout.startswith("gpu 0 ")
    else:
        assert said.returncode == 2
        assert said.stdout.startswith("no GPU: ")
