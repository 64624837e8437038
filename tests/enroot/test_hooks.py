# SPDX-License-Identifier: Apache-2.0
"""Hooks for devices: CDI in YAML, InfiniBand adapters, and the scripts that are not enabled by default."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.enroot.conftest import SOURCES, Enroot

SPECIFICATION = """\
cdiVersion: "0.6.0"
kind: nvidia.com/gpu
devices:
  - name: "0"
    containerEdits: {{deviceNodes: [{{path: /dev/nvidia0, hostPath: /dev/null}}], env: ["ZERO=0"]}}
  - name: "1:2"
    containerEdits: {{deviceNodes: [{{path: /dev/nvidia1, hostPath: /dev/zero}}], env: ["ONE=1"]}}
containerEdits:
  env: ["COMMON=yes"]
  mounts:
    - {{hostPath: {home}/driver, containerPath: /opt/driver, options: [rbind, rw]}}
    - {{hostPath: {home}/driver/lib, containerPath: /opt/lib, options: [ro, noexec, bind]}}
  hooks:
    - hookName: createContainer
      path: /usr/bin/nvidia-cdi-hook
      args: [nvidia-cdi-hook, create-symlinks, "--link=lib::/opt/driver/link"]
    - hookName: createContainer
      path: /usr/bin/nvidia-cdi-hook
      args: [nvidia-cdi-hook, enable-cuda-compat, --host-driver-version=1]
    - hookName: createContainer
      path: /usr/bin/nvidia-cdi-hook
      args: [nvidia-cdi-hook, chmod, --mode, "755"]
"""

OTHER = """\
cdiVersion: "0.6.0"
kind: nvidia.com/gpu
devices: [{name: "far", containerEdits: {env: ["FAR=yes"]}}]
containerEdits: {env: ["OTHER=yes"]}
"""


def test_several_devices_of_several_specifications(enroot: Enroot) -> None:
    if shutil.which("nvidia-container-cli"):
        pytest.skip("the real one is here")
    enroot.write(enroot.home / "driver/lib", "of the driver\n")
    enroot.write(enroot.home / "cdi/a.yaml", SPECIFICATION.format(home=enroot.home))
    enroot.write(enroot.home / "cdi/b.yml.off", "nonsense: [")
    enroot.write(enroot.home / "cdi/b.yaml", OTHER)
    script = "echo $COMMON $OTHER $ZERO $ONE $FAR; [ -c /dev/nvidia0 ] && [ -c /dev/nvidia1 ]"
    script += " && cat /opt/driver/link"
    script += "; echo x > /opt/driver/new; (: > /opt/lib) 2>/dev/null || echo refused"
    options = ("--ipc", "-e", "NVIDIA_VISIBLE_DEVICES=0,1:2,far,missing")
    environment = {"ENROOT_CDI_PATH": str(enroot.home / "cdi")}
    done = enroot("start", *options, "small", "sh", "-c", script, env=environment)
    assert done.stdout.splitlines() == ["yes yes 0 1 yes", "of the driver", "refused"], done.stderr
    assert (enroot.home / "driver/new").exists()
    # Which hook was not done, and which device there is not; nothing else.
    told = done.stderr.splitlines()
    assert len(told) == 2, told
    assert 'no GPU "missing"' in told[0]
    assert told[1].endswith("left out: /usr/bin/nvidia-cdi-hook enable-cuda-compat")


# A made-up /sys/class/infiniband and /dev/infiniband over this machine's, in the test's own mount namespace.
ADAPTERS = """\
set -e
mount -t tmpfs none /sys/class
mkdir -p /sys/class/infiniband
mkdir -p "$0/nodes"; mount -t tmpfs none "$0/nodes"
mknod "$0/nodes/rdma_cm" c 1 3
number=0
for name in mlx5_0 mlx5_2 mlx5_10; do
    device=/sys/class/infiniband/$name/device
    mkdir -p $device/infiniband_verbs/uverbs$number $device/infiniband_mad/umad$number
    mknod "$0/nodes/uverbs$number" c 1 3
    mknod "$0/nodes/umad$number" c 1 3
    number=$((number + 1))
done
chmod 666 "$0"/nodes/*
mount -t tmpfs none /dev
mkdir /dev/infiniband /dev/shm /dev/pts
for node in null zero full random urandom tty; do mknod -m 666 /dev/$node c 1 3; done
mount --bind "$0/nodes" /dev/infiniband
exec "$@"
"""


@pytest.mark.parametrize(
    ("wanted", "options", "shown"),
    [
        ("all", (), "rdma_cm umad0 umad1 umad2 uverbs0 uverbs1 uverbs2"),
        ("all", ("--ipc",), "rdma_cm umad0 umad1 umad2 uverbs0 uverbs1 uverbs2"),
        ("2,mlx5_0", (), "rdma_cm umad0 umad2 uverbs0 uverbs2"),
        ("mlx5_2", ("--ipc",), "rdma_cm umad1 uverbs1"),
        ("none", ("--ipc",), ""),
        ("void", ("--ipc",), ""),
        ("mlx5_7", ("--ipc",), "rdma_cm"),
    ],
)
def test_adapters_that_were_asked_for(
    shared: Enroot, wanted: str, options: tuple[str, ...], shown: str
) -> None:
    if os.geteuid():
        pytest.skip("needs root: it covers /sys and /dev in a mount namespace")
    script = "cd /dev/infiniband 2>/dev/null && echo *"
    start = ["start", *options, "-e", f"MELLANOX_VISIBLE_DEVICES={wanted}", "small", "sh", "-c", script]
    become = ["setpriv", f"--reuid={shared.account}", f"--regid={shared.account}", "--clear-groups"]
    command = ["unshare", "--mount", "sh", "-c", ADAPTERS, shared.base, *become, shared.program, *start]
    done = subprocess.run(command, env=shared.environment(), capture_output=True, text=True, cwd=shared.home)
    assert done.stdout.strip() == shown, done.stderr
    assert ('no adapter "mlx5_7"' in done.stderr) == (wanted == "mlx5_7")


def test_shellcheck_finds_nothing_in_the_scripts() -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(["shellcheck", *SOURCES.glob("optional/*.sh")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_slurm_and_pytorch(enroot: Enroot) -> None:
    for name in ("50-slurm-pmi.sh", "50-slurm-pytorch.sh"):
        # A copy: the checkout may lie where the user cannot look.
        enroot.write(enroot.sysconf / "hooks.d" / name, (SOURCES / "optional" / name).read_text(), 0o755)
    server = enroot.write(enroot.home / "pmix/file", "of PMIx").parent
    job = {
        "SLURM_STEP_ID": "0",
        "SLURM_JOB_ID": "70",
        "SLURM_STEP_NODELIST": "gpu-[07-09,12]",
        "SLURM_NTASKS": "8",
        "SLURM_PROCID": "5",
        "SLURM_LOCALID": "1",
        "SLURM_ODD": "two\nlines",
        "PMIX_RANK": "5",
        "PMI_FD": "7",
        "PMIX_SERVER_TMPDIR": str(server),
    }
    script = f"env | grep -E '^(SLURM|PMI|MASTER|WORLD|RANK|LOCAL)'; cat {server}/file"
    told = enroot.sh(script, "-e", "PYTORCH_VERSION=2", "-e", "MASTER_PORT=1", env=job).splitlines()
    assert {"SLURM_JOB_ID=70", "PMIX_RANK=5", "MASTER_ADDR=gpu-07", "MASTER_PORT=1", "WORLD_SIZE=8"} <= set(
        told
    )
    assert {"RANK=5", "LOCAL_RANK=1", "of PMIx"} <= set(told)
    assert not [line for line in told if line.startswith(("PMI_FD", "SLURM_ODD"))]
    assert not [line for line in enroot.sh("env", env=job).splitlines() if line.startswith("MASTER_")]


def test_what_pmix_offers_becomes_parameters_of_mca(enroot: Enroot) -> None:
    name = "50-slurm-pmi.sh"
    enroot.write(enroot.sysconf / "hooks.d" / name, (SOURCES / "optional" / name).read_text(), 0o755)
    offered = {
        "PMIX_SECURITY_MODE": "munge,native",
        "PMIX_GDS_MODULE": "shmem2,hash",
        "PMIX_PTL_MODULE": "tcp",
    }
    script = "echo $PMIX_MCA_psec $PMIX_MCA_gds $PMIX_MCA_ptl"
    assert enroot.sh(script, env=offered) == "munge,native shmem2,hash tcp"
    # What somebody chose stays: the job's, or the container's.
    assert enroot.sh(script, env={**offered, "PMIX_MCA_gds": "hash"}) == "munge,native hash tcp"
    assert enroot.sh(script, "-e", "PMIX_MCA_psec=native", env=offered) == "native shmem2,hash tcp"
    assert enroot.sh(f"env | grep -c PMIX_MCA || {script}", env={"SLURM_JOB_ID": "1"}).strip() == "0"


@pytest.mark.parametrize(
    ("layout", "node", "threads"),
    [("1", "0", ""), ("2", "0", "1"), ("1(x3),4", "2", ""), ("1(x3),4", "3", "1"), ("3(x2),1", "2", "")],
)
def test_several_tasks_on_a_node_have_one_thread_each(
    enroot: Enroot, layout: str, node: str, threads: str
) -> None:
    name = "50-slurm-pytorch.sh"
    enroot.write(enroot.sysconf / "hooks.d" / name, (SOURCES / "optional" / name).read_text(), 0o755)
    step = {"SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": layout, "SLURM_NODEID": node}
    script, version = "echo $OMP_NUM_THREADS", ("-e", "PYTORCH_VERSION=2")
    assert enroot.sh(script, *version, env=step) == threads
    assert enroot.sh(script, *version, "-e", "OMP_NUM_THREADS=5", env=step) == "5"
    # The job's own reaches the task by way of pyxis: the container must not have another.
    assert enroot.sh(script, *version, env={**step, "OMP_NUM_THREADS": "6"}) == ""


def test_the_scripts_for_devices_do_nothing_without_any(enroot: Enroot) -> None:
    for name in ("50-sharp.sh", "50-mig.sh"):
        enroot.write(enroot.sysconf / "hooks.d" / name, (SOURCES / "optional" / name).read_text(), 0o755)
    assert enroot.sh("echo none $SHARP_COLL_X", env={"SHARP_COLL_X": "1"}) == "none"
    told = enroot.sh("echo $SHARP_COLL_X", "-e", "MELLANOX_VISIBLE_DEVICES=all", env={"SHARP_COLL_X": "1"})
    assert told == "1"
