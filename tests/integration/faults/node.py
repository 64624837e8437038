# SPDX-License-Identifier: Apache-2.0
"""Breaks a node, its mount plan or its volume for a test, and names the cause that Slurm should report."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from cellblock.cluster.engine.api import podman_environment
from cellblock.cluster.engine.container_specs import container_name
from tests.integration.faults.node_mounts import on_node
from tests.integration.local_cluster import LocalCluster

WORKER = "worker-1"


HOLDER = "/run/cellblock/jail"


Fault = Callable[[LocalCluster], AbstractContextManager[None]]


def plan_file(cluster: LocalCluster) -> Path:
    return cluster.root.parent.parent / "config" / "worker" / "jail.fstab"


def container_pid(cluster: LocalCluster, worker: str = WORKER) -> str:
    """The first process of the worker's container, as this machine numbers it."""
    command = ["podman", "inspect", "--format={{.State.Pid}}", container_name(cluster.request.name, worker)]
    environment = {**os.environ, **podman_environment()}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()


@contextmanager
def mounted(cluster: LocalCluster, target: str, options: str = "") -> Iterator[Path]:
    """An empty tmpfs over `target` in the worker, outside the jail; yields it as this machine sees it."""
    pid = container_pid(cluster)
    on_node(pid, "mount", target, options)
    try:
        yield Path("/proc", pid, "root", target.lstrip("/"))
    finally:
        on_node(pid, "umount", target)


def extra_line(line: str) -> Fault:
    """A line more in the workers' plan, its last."""

    @contextmanager
    def fault(cluster: LocalCluster) -> Iterator[None]:
        plan = plan_file(cluster)
        good = plan.read_text()
        plan.write_text(good + line + "\n")
        try:
            yield
        finally:
            plan.write_text(good)

    return fault


@contextmanager
def no_plan(cluster: LocalCluster) -> Iterator[None]:
    plan = plan_file(cluster)
    away = plan.rename(plan.with_suffix(".away"))
    try:
        yield
    finally:
        away.rename(plan)


@contextmanager
def plan_that_others_may_write(cluster: LocalCluster) -> Iterator[None]:
    plan_file(cluster).chmod(0o666)
    try:
        yield
    finally:
        plan_file(cluster).chmod(0o644)


def volume_with(*folders: str) -> Fault:
    """Another volume on the worker: nothing but these folders."""

    @contextmanager
    def fault(cluster: LocalCluster) -> Iterator[None]:
        with mounted(cluster, "/mnt/jail") as volume:
            for folder in folders:
                (volume / folder).mkdir(parents=True)
            yield

    return fault


@contextmanager
def stale_volume(cluster: LocalCluster) -> Iterator[None]:
    """A real file system of the kernel that answers ESTALE to everything."""
    pid = container_pid(cluster)
    program = [sys.executable, str(Path(__file__).with_name("stale_volume.py")), pid, "/mnt/jail"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == "mounted\n"
            yield
        finally:
            server.kill()
            on_node(pid, "umount", "/mnt/jail")


def small_volume(options: str) -> Fault:
    """A volume with the targets of the plan, but not /srv/new, on which nothing more can be made."""

    @contextmanager
    def fault(cluster: LocalCluster) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(extra_line("/etc/hosts /srv/new none bind,x-create=file")(cluster))
            volume = stack.enter_context(mounted(cluster, "/mnt/jail"))
            root = volume / "root"
            folders = ("usr", "etc/slurm", "proc", "sys", "dev/pts", "dev/shm", "dev/mqueue", "run/munge")
            for folder in (*folders, "tmp", "srv", "var/spool/slurmd"):
                (root / folder).mkdir(parents=True)
            for file in ("etc/hosts", "etc/resolv.conf"):
                (root / file).touch()
            full = f"nr_inodes={len(list(volume.rglob('*'))) + 1}"
            on_node(container_pid(cluster), "remount", "/mnt/jail", options.replace("full", full))
            yield

    return fault


def holder_on(options: str) -> Fault:
    """The directory in which the node keeps what belongs to jobs, on another file system."""

    @contextmanager
    def fault(cluster: LocalCluster) -> Iterator[None]:
        with mounted(cluster, "/run/cellblock", options):
            yield

    return fault


@contextmanager
def root_that_others_may_write(cluster: LocalCluster) -> Iterator[None]:
    """Root in the jail can do that: chmod 777 /."""
    with ExitStack() as stack:
        # Not the shared one: the login node would refuse it, too.
        stack.enter_context(volume_with("root/usr", "root/etc")(cluster))
        Path("/proc", container_pid(cluster), "root/mnt/jail/root").chmod(0o777)
        yield


# Of the node, or of what its administrator gave it: no job can run there.
NODE_FAULTS: dict[str, tuple[Fault, str]] = {
    "a line of the plan that makes no sense": (extra_line("gibberish"), r"jail\.fstab:LAST: .*"),
    "an unknown option in the plan": (
        extra_line("proc /proc proc nonsense"),
        r"jail\.fstab:LAST: .*nonsense",
    ),
    "a source that is missing": (
        extra_line("/does/not/exist /srv none bind"),
        r'jail\.fstab:LAST: /srv: open_tree: .*ENOENT.*"/does/not/exist" is missing',
    ),
    "no plan": (no_plan, r"/etc/cellblock/jail\.fstab: realpath: .*ENOENT.* the mount plan"),
    "a plan that others may write": (plan_that_others_may_write, r"mount plan .*mode 0666; chmod go-w"),
    "no jail": (volume_with(), r"/mnt/jail/root: realpath: .*ENOENT.* the jail root .* volume mounted"),
    "a jail half assembled": (
        volume_with(".cellblock/staging.1/root/usr"),
        r"/mnt/jail/root: realpath: .*ENOENT.* the jail root",
    ),
    "an empty jail": (volume_with("root"), r'/mnt/jail/root: .*no directory "usr".*assembled'),
    "a stale volume": (stale_volume, r"/mnt/jail/root: realpath: .*ESTALE.* mount its volume again"),
    "no place for the mounts of jobs": (holder_on("ro"), r"mkdir: .*EROFS.*/run/cellblock/jail"),
    "a full place for the mounts of jobs": (
        holder_on("nr_inodes=1"),
        r"mkdir: .*ENOSPC.*/run/cellblock/jail",
    ),
}


# In the tree that users write.
JAIL_FAULTS: dict[str, tuple[Fault, str]] = {
    "a full volume": (
        small_volume("full"),
        r"jail\.fstab:LAST: /srv/new: mknodat: .*ENOSPC.* not full",
    ),
    "a read-only volume": (small_volume("ro"), r"jail\.fstab:LAST: /srv/new: mknodat: .*EROFS.* writable"),
    "a target that is missing": (
        extra_line("/etc/hosts /srv/missing none bind"),
        r"jail\.fstab:LAST: /srv/missing: openat2: .*ENOENT.* create it there",
    ),
    "a target of another kind": (
        extra_line("/etc/hosts /srv none bind"),
        r"jail\.fstab:LAST: /srv: move_mount: .* both be files",
    ),
    "a root that others may write": (root_that_others_may_write, r"jail root .*mode 0777; chmod go-w"),
}
