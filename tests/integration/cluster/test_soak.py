# SPDX-License-Identifier: Apache-2.0
"""A thousand steps and more, a part of them killed at any moment: all others work, and nothing is left.

About a minute and a half on two cores, at 30 ms a step. CELLBLOCK_SOAK_STEPS=10000 is for a long run.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

STEPS = int(os.environ.get("CELLBLOCK_SOAK_STEPS", "1000"))
AT_ONCE = 16
TIMEOUT_S = 900
WORKERS = ("worker-1", "worker-2")

# One step that must work: prints "ok", or what was wrong. In the jail means: the jail's release file is
# there, the node's tree is not. $1: a number; JOB, NODE: where.
STEP = """#!/bin/bash
node=${NODE:-worker-$(($1 % 2 + 1))}
inside='test -e /etc/cellblock/jail-release && ! test -e /mnt/jail || exit
echo $(($0 * $0)) $(id -un) $SLURMD_NODENAME'
out=$(srun --jobid="$JOB" --overlap --mpi=none -N1 -n1 -w "$node" sh -c "$inside" "$1" 2>"$0.error.$1")
status=$?
# What srun itself has to say while steps beside it are killed (22.05) is no failure.
[ "$status $out" = "0 $(($1 * $1)) $(id -un) $node" ] && echo ok && exit
echo "step $1: $status" $out $(cat "$0.error.$1")
"""

# A step that is killed, one of three ways, and after it one that must work. $1: a number.
VICTIM = r"""#!/bin/bash
RANDOM=$1
delay() { printf '0.%03d' $((RANDOM % $1)); }
step() { exec srun --jobid="$JOB" --overlap --mpi=none -N1 -n1 -w "$NODE" --job-name="victim$1" sleep 2; }
case $(($1 % 3)) in
0)  # srun
    step "$1" >/dev/null 2>&1 &
    sleep "$(delay 120)" ;;
1)  # scancel of the step, as soon as slurmctld knows it, or later
    step "$1" >/dev/null 2>&1 &
    for try in {1..100}; do
        id=$(squeue -h -s -j "$JOB" -o '%i %j' | sed -n "s/ victim$1\$//p")
        [ -z "$id" ] || break
    done
    sleep "$(delay 60)"
    scancel "$id" && echo "cancelled" ;;
2)  # slurmstepd: the killer on the worker does it, once it has seen this
    delay 80 > "$HOME/soak/wanted.new" && mv "$HOME/soak/wanted.new" "$HOME/soak/wanted"
    step "$1" >/dev/null 2>&1 &
    for try in {1..100}; do [ ! -e "$HOME/soak/wanted" ] && break; sleep 0.02; done
    rm -f "$HOME/soak/wanted" && sleep 0.1 ;;
esac
kill -KILL $! 2>/dev/null && [ $(($1 % 3)) = 0 ] && echo "killed srun"
"$HOME/soak/step" "$1"
"""

# On the worker, outside the jail: kills the slurmstepd of a step of job $1 when the file $2 asks for it,
# after as many seconds as it says, until the file $2.end is there.
KILLER = r"""
while [ ! -e "$2.end" ]; do
    if [ ! -e "$2" ]; then sleep 0.01; continue; fi
    for process in /proc/[0-9]*; do
        read -r name < "$process/comm" && [ "$name" = slurmstepd ] || continue
        case $(tr '\0' ' ' < "$process/cmdline") in "slurmstepd: [$1."[0-9]*) ;; *) continue ;; esac
        sleep "$(cat "$2")"
        kill -KILL "${process#/proc/}" && echo "killed slurmstepd"
        rm -f "$2"
    done
done 2>/dev/null
true
"""

# What a worker has, one "name value" a line.
SNAPSHOT = r"""
for process in /proc/[0-9]*; do
    # By its command line: a slurmd that was reconfigured has executed itself, and is called otherwise.
    set -- $(tr '\0' ' ' < "$process/cmdline" 2>/dev/null)
    [ "${1##*/}" = slurmd ] && slurmd=$process
done
echo mounts $(wc -l < "$slurmd/mountinfo")
echo pinned $(grep -c ' - nsfs ' "$slurmd/mountinfo")
echo descriptors $(ls "$slurmd/fd" | wc -l)
echo namespaces $(for p in /proc/[0-9]*; do readlink "$p/ns/mnt"; done | sort -u | wc -l)
echo slurmstepds $(cat /proc/[0-9]*/comm 2>/dev/null | grep -cx slurmstepd)
echo processes $(cat /proc/[0-9]*/comm 2>/dev/null | grep -cvx -e sh -e cat -e grep)
echo held $(ls -A /run/cellblock/jail | wc -l)
"""


def snapshot(cluster: LocalCluster, worker: str) -> dict[str, int]:
    lines = cluster.on(worker, "sh", "-c", SNAPSHOT).ok().splitlines()
    return {name: int(value) for name, value in (line.split() for line in lines)}


def hidden_file_systems() -> int:
    """About how many the kernel holds that no process sees: a new one gets the lowest number that is free.

    What other containers of the machine have mounted, their processes see.
    """
    command = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt && stat -c %d /mnt"]
    number = os.minor(int(subprocess.run(command, capture_output=True, check=True).stdout))
    seen: dict[str, set[str]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            namespace = str((process / "ns/mnt").readlink())
            if namespace not in seen:
                lines = (process / "mountinfo").read_text().splitlines()
                seen[namespace] = {line.split()[2] for line in lines}
    numbers = (device.split(":") for device in set().union(*seen.values()))
    return number - sum(major == "0" and int(minor) < number for major, minor in numbers)


@pytest.fixture
def untouched(cluster: LocalCluster, user: str) -> Iterator[None]:
    """After the test both workers are as they were before it."""
    cluster.jail("srun", "-N2", "true", user=user).ok()
    cluster.wait_until("no job", lambda: not cluster.on("controller", "squeue", "-h").ok())
    before, there_were = {worker: snapshot(cluster, worker) for worker in WORKERS}, hidden_file_systems()
    assert {state["held"] for state in before.values()} == {0}
    yield
    deadline = time.monotonic() + 180
    while (after := {worker: snapshot(cluster, worker) for worker in WORKERS}) != before:
        assert time.monotonic() < deadline, f"before: {before}\nafter:  {after}"
        time.sleep(1)
    for worker in WORKERS:
        assert "DRAIN" not in cluster.on("controller", "scontrol", "show", "node", worker).ok()
    # Others begin and end at this moment: some, not one a step or a killed step.
    while (more := hidden_file_systems() - there_were) >= 40:
        assert time.monotonic() < deadline, f"{more} file systems more than before"
        time.sleep(1)


@pytest.fixture
def soak(cluster: LocalCluster, user: str) -> Iterator[Path]:
    """The user's folder with the programs of this test, as the tests see it."""
    folder = cluster.root / "home" / user / "soak"
    cluster.jail("mkdir", "-p", str(Path("/home", user, "soak")), user=user).ok()
    for name, text in (("step", STEP), ("victim", VICTIM)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    yield folder
    cluster.jail("rm", "-r", str(Path("/home", user, "soak"))).ok()


def allocate(cluster: LocalCluster, user: str, *options: str) -> str:
    """A job without a shell, in which steps are run; returns its id."""
    done = cluster.jail("salloc", "--no-shell", *options, user=user)
    done.ok()
    return done.err.rpartition("Granted job allocation ")[2].split()[0]


def run(
    cluster: LocalCluster, user: str, program: str, count: int, at_once: int, **where: str
) -> Counter[str]:
    """Run `program` with 1 to `count`, so many at once; returns how often each line was printed."""
    settings = [f"{name}={value}" for name, value in where.items()]
    command = f"seq {count} | xargs -P {at_once} -n 1 /home/{user}/soak/{program}"
    done = cluster.jail("env", *settings, "sh", "-c", command, user=user, timeout_s=TIMEOUT_S)
    return Counter(done.out.splitlines())


def kill_on_demand(cluster: LocalCluster, job: str, wanted: Path) -> Counter[str]:
    inside = Path("/mnt/jail/root") / wanted.relative_to(cluster.root)
    done = cluster.on("worker-1", "sh", "-c", KILLER, "killer", job, str(inside), timeout_s=TIMEOUT_S)
    return Counter(done.ok().splitlines())


@pytest.mark.usefixtures("untouched")
def test_many_steps_at_once_all_run_in_the_jail(cluster: LocalCluster, user: str, soak: Path) -> None:
    job = allocate(cluster, user, "-N2", "--exclusive")
    try:
        assert run(cluster, user, "step", STEPS, AT_ONCE, JOB=job) == {"ok": STEPS}
    finally:
        cluster.jail("scancel", job, user=user).ok()


@pytest.mark.usefixtures("untouched")
def test_steps_killed_at_any_moment_harm_no_other_and_leave_nothing(
    cluster: LocalCluster, user: str, soak: Path
) -> None:
    victims = STEPS // 20
    others = STEPS // 2 - 2 * victims  # each victim is followed by a step that must work
    quiet = allocate(cluster, user, "-w", "worker-1", "-n1")
    hunted = allocate(cluster, user, "-w", "worker-1", "-n1")
    try:
        with ThreadPoolExecutor() as pool:
            killer = pool.submit(kill_on_demand, cluster, hunted, soak / "wanted")
            worked = pool.submit(run, cluster, user, "step", others, 4, JOB=quiet, NODE="worker-1")
            try:
                seen = run(cluster, user, "victim", victims, 1, JOB=hunted, NODE="worker-1")
            finally:
                (soak / "wanted.end").touch()
            assert worked.result() == {"ok": others}
            seen += killer.result()
    finally:
        cluster.jail("scancel", quiet, hunted, user=user).ok()
    # A step that ended before its turn does not count; that is rare.
    kills = {name: seen.pop(name) for name in ("killed srun", "cancelled", "killed slurmstepd")}
    assert seen == {"ok": victims}
    assert min(kills.values()) > 0.8 * victims / 3, kills
