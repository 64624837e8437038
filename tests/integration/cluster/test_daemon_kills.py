# SPDX-License-Identifier: Apache-2.0
"""Each daemon is killed at any moment, alone and with another, under load: no job is lost.

CELLBLOCK_DAEMON_KILLS=200 is for a long run: some 15 minutes.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cellblock.cluster.engine.container_specs import container_name
from tests.integration.conftest import default_variant, running_cluster
from tests.integration.local_cluster import LocalCluster, podman

pytestmark = pytest.mark.integration

KILLS = int(os.environ.get("CELLBLOCK_DAEMON_KILLS", "8"))
SEED = int(os.environ.get("CELLBLOCK_DAEMON_KILLS_SEED", "1"))
# Where it runs, and what it is called.
DAEMONS = [
    ("controller", "slurmctld"),
    ("accounting", "slurmdbd"),
    ("database", "mariadbd"),
    ("worker-1", "slurmd"),
    ("worker-2", "slurmd"),
    ("controller", "munged"),
    ("accounting", "munged"),
    ("worker-1", "munged"),
    ("worker-2", "munged"),
    ("login", "munged"),
    ("controller", "jail-accounts"),
]
# Seconds that nobody mends anything in: what slurmd lost is found after two minutes, and Slurm has it wait
# for two more. It may be lost twice.
RECOVERY_S = 600
TIMEOUT_S = 7200

# What users do until there is a file `stop`. Each job writes its number down when it begins and when it ends,
# a task of an array as ARRAY_TASK; `accepted` has those whose submission was answered. What waits for a job
# of slurmctld's last tenth of a second, which is lost, waits for ever: Slurm's commands ask nobody. Who ends
# such a command cancels its allocation, too: the command could not, if slurmctld did not answer it.
LOAD = r"""#!/bin/bash
cd "$HOME/kills" || exit
job='id=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}; id=${id:-$SLURM_JOB_ID}
echo $id >>began; sleep 1; echo $id >>ended'
batches() {
    while [ ! -e stop ]; do
        id=$(sbatch --parsable --output=/dev/null --chdir=. --wrap="$job" 2>>refused) && echo "$id" >>accepted
        id=$(sbatch --parsable --array=0-1 --output=/dev/null --chdir=. --wrap="$job" 2>>refused) &&
            printf '%s_0\n%s_1\n' "$id" "$id" >>accepted
        while [ "$(squeue --me -h -r 2>/dev/null | wc -l)" -gt 12 ] && [ ! -e stop ]; do sleep 0.3; done
    done
}
steps() {
    while [ ! -e stop ]; do
        patient srun --quiet --job-name=steps --mpi=none -n1 --chdir=. sh -c "$job"
        patient salloc --quiet --job-name=steps -n1 --chdir=. srun --quiet --mpi=none sh -c "$job"
        sleep 0.2
    done
}
patient() {
    timeout 120 "$@" >>steps.out 2>&1
    [ $? != 124 ] || until scancel --me --name=steps 2>>steps.out; do sleep 1; done
}
batches & steps & wait
"""


@pytest.fixture(scope="module")
def attended() -> object:
    """A cluster with accounting of this module's own."""
    with running_cluster("kills", default_variant()) as running:
        running.add_user("ada")
        yield running


def kill(cluster: LocalCluster, hostname: str, program: str) -> None:
    numbers = cluster.numbers_of(hostname, program)
    if numbers:
        cluster.on(hostname, "kill", "-KILL", *numbers)


def kill_at_random(cluster: LocalCluster, chosen: random.Random) -> None:
    for _ in range(KILLS):
        time.sleep(chosen.uniform(0, 3))
        for hostname, program in chosen.sample(DAEMONS, chosen.choice((1, 1, 2))):
            kill(cluster, hostname, program)


def queue(cluster: LocalCluster) -> str:
    """What squeue says of all jobs that are not over; "?" when nobody answers."""
    done = cluster.on("controller", "squeue", "--all", "-h", "-r", "--format=%i %T %r %N %S")
    return done.out if done.status == 0 else "?"


def numbers(folder: Path, name: str) -> list[str]:
    file = folder / name
    return file.read_text().split() if file.exists() else []


def test_no_job_is_lost_and_nobody_is_needed(attended: LocalCluster) -> None:
    chosen = random.Random(SEED)
    folder = attended.root / "home/ada/kills"
    attended.jail("mkdir", "-p", "/home/ada/kills", user="ada").ok()
    (folder / "load").write_text(LOAD)
    with ThreadPoolExecutor() as pool:
        load = pool.submit(attended.jail, "bash", "/home/ada/kills/load", user="ada", timeout_s=TIMEOUT_S)
        try:
            kill_at_random(attended, chosen)
        finally:
            (folder / "stop").touch()
        load.result()
    deadline = time.monotonic() + RECOVERY_S
    while queue(attended):
        if time.monotonic() > deadline:
            states = attended.on("controller", "sinfo", "-N", "-h", "-o", "%N %T %E").out
            pytest.fail(f"after {RECOVERY_S} s:\n{states}{queue(attended)}")
        time.sleep(1)
    ended = Counter(numbers(folder, "ended"))
    accepted = numbers(folder, "accepted")
    assert len(accepted) >= KILLS
    lost = [job for job in accepted if not ended[job]]
    assert not lost, said_of(attended, lost)
    attended.wait_until("each is in the accounting once", lambda: accounted(attended, accepted))
    nodes = ("sinfo", "-h", "-o", "%t")
    attended.wait_until(
        "all nodes are idle", lambda: attended.on("controller", *nodes).out.split() == ["idle"]
    )


def said_of(cluster: LocalCluster, jobs: list[str]) -> str:
    """What the accounting and the log of slurmctld have of them, and when it was started."""
    numbers = {job.partition("_")[0] for job in jobs}
    kept = cluster.on("controller", "sacct", "-XDP", "--allusers", f"--jobs={','.join(numbers)}").out
    log = podman("logs", container_name(cluster.request.name, "controller"))
    about = re.compile(rf"slurmctld version|\b({'|'.join(numbers)})\b")
    return f"lost: {jobs}\n{kept}" + "\n".join(line for line in log.splitlines() if about.search(line))


def accounted(cluster: LocalCluster, jobs: list[str]) -> bool:
    """Whether the accounting has each job once, as one that ended well."""
    done = cluster.on("controller", "sacct", "-nXP", "--allusers", "--format=jobid,state")
    states = Counter(done.out.splitlines())
    return done.status == 0 and all(states[f"{job}|COMPLETED"] == 1 for job in jobs)
