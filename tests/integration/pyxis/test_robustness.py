# SPDX-License-Identifier: Apache-2.0
"""Jobs cancelled at any moment, nodes that forget, full file systems: nothing hangs, nothing is left, and the
next job works.

CELLBLOCK_PYXIS_KILLS=200 for more than the few jobs that are cancelled here, about a second each.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.faults.node import mounted
from tests.integration.jobs import ended, home, script_file, submit
from tests.integration.pyxis.conftest import IMAGE, Containers

pytestmark = pytest.mark.integration
KILLS = int(os.environ.get("CELLBLOCK_PYXIS_KILLS", "8"))
WORKER = "worker-1"

# Job number $1, of a form and cancelled in a way and at a moment of its own. Prints nothing, unless it is
# there long after: Slurm itself takes some seconds now and then.
_CANCEL = r"""#!/bin/bash
RANDOM=$1; cd; image="--container-image=$2"; name="--container-name=kill$1 --container-writable"
forms=("$image" "-n3 --overcommit $image" "$image $name" "$image --container-save=$HOME/kill$1.sqsh"
    "-N2 $image $name" "$image --container-entrypoint")
ways=("" --signal=KILL "--signal=TERM --full" "--signal=KILL --full" --signal=INT)
form=${forms[$(($1 % ${#forms[@]}))]}; way=${ways[$((RANDOM % ${#ways[@]}))]}
nodes=1; case $form in -N2*) nodes=2 ;; esac
job=$(sbatch --parsable -N$nodes -n$nodes -o /dev/null --wrap "srun $form sleep 60") || exit
while squeue -h -j "$job" -o %T | grep -q PENDING; do sleep 0.05; done
sleep 0.$((RANDOM % 900 + 100))
scancel $way "$job" 2>/dev/null
[ -z "$way" ] || { sleep 0.5; scancel "$job" 2>/dev/null; }
for i in {1..100}; do [ -n "$(squeue -h -j "$job" 2>/dev/null)" ] || break; sleep 0.2; done
[ $i -lt 100 ] || echo "$job of \"$form\" is there 20 s after scancel $way"
rm -f "kill$1.sqsh"
"""


def containers_of(containers: Containers) -> Path:
    folder = home(containers.cluster, containers.user) / ".local/share/enroot"
    containers.cluster.jail("bash", "-c", "mkdir -p ~/.local/share/enroot", user=containers.user).ok()
    return folder


@pytest.mark.every_slurm
def test_a_task_that_waits_for_its_container_is_cancelled_at_once(containers: Containers) -> None:
    """Slurm spares what is still called slurmstepd: without a name of its own such a task runs on."""
    lock = f"/home/{containers.user}/.local/share/enroot/.pyxis_awaited.lock"
    containers_of(containers)
    named = f"srun -n2 --overcommit --container-image={IMAGE} --container-name=awaited sleep 60"
    script = f"""
        (flock 9; sleep 10) 9> {lock} & holder=$!
        job=$(sbatch --parsable -o /dev/null --wrap '{named}'); while :; do
            [ -z "$(squeue -h -s -j $job -o %i | grep '\\.0$')" ] || break; sleep 0.1; done
        sleep 0.5; scancel $job; for i in $(seq 50); do
            [ -n "$(squeue -h -j $job -t RUNNING,COMPLETING)" ] || break; sleep 0.2; done
        kill $holder; rm {lock}; echo $i"""
    done = containers.cluster.jail("bash", "-c", script, user=containers.user)
    assert int(done.ok()) < 40, done
    containers.cluster.wait_until("nothing is left", lambda: not containers.leftovers())


def test_jobs_cancelled_at_any_moment_leave_nothing(containers: Containers) -> None:
    cluster, user = containers.cluster, containers.user
    program = script_file(cluster, user, "cancel", _CANCEL)
    lane = f'for i in $(seq $lane 4 {KILLS}); do {program} "$i" {IMAGE}; done'
    lanes = f"for lane in 1 2 3 4; do {lane} & done; wait"
    done = cluster.jail("bash", "-c", lanes, user=user, timeout_s=60 + 5 * KILLS)
    assert done.out == "", done
    assert containers.image("-N2", "hostname").ok().split()
    # Locks without a holder go when the next is taken.
    assert containers.image("--container-name=killed", "true").status == 0
    cluster.wait_until("nothing is left", lambda: not containers.leftovers())

    def notes() -> list[str]:
        return [cluster.on(worker, "ls", "/run/pyxis").out for worker in ("worker-1", "worker-2")]

    cluster.wait_until("no note is left", lambda: not any(notes()))
    cluster.jail("bash", "-c", "enroot remove --force --match 'pyxis_kill*'", user=user).ok()


def make_root(folder: Path, name: str, mark: str) -> Path:
    """A container of the user, with what pyxis notes in it."""
    owner = folder.stat()
    root = folder / name
    (root / "etc").mkdir(parents=True)
    (root / ".lock").write_text(mark)
    for path in (root, root / "etc", root / ".lock"):
        os.chown(path, owner.st_uid, owner.st_gid)
    return root


@pytest.mark.every_slurm
def test_what_jobs_left_that_had_no_epilog_goes_later(containers: Containers) -> None:
    """of this cluster, and of jobs that slurmctld says are over"""
    cluster, user = containers.cluster, containers.user
    folder, name = containers_of(containers), cluster.request.name
    live = submit(cluster, user, "sleep 60", "-o/dev/null", "-wworker-2")
    gone = make_root(folder, "pyxis_4000001.0", f"4000001.0 temporary {name}\n")
    file = folder / f".pyxis_4000001.1_worker-2@{name}.sqsh"
    file.touch()
    kept = [
        make_root(folder, f"pyxis_{live}.0", f"{live}.0 temporary {name}\n"),
        make_root(folder, "pyxis_4000002.0", "4000002.0 temporary another-cluster\n"),
        make_root(folder, "pyxis_22.10", "4000003.0\n"),
    ]
    noted = make_root(folder, "pyxis_4000004.0", "4000004.0 temporary another-home\n")
    write = f"mkdir -p -m 700 /run/pyxis; echo {folder.stat().st_uid} > /run/pyxis/4000004"
    cluster.on(WORKER, "sh", "-c", write).ok()
    try:
        containers.image("-w", WORKER, "true").ok()
        assert not gone.exists()
        assert not file.exists()
        # By the note, when the job began.
        assert not noted.exists()
        assert "4000004" not in cluster.on(WORKER, "ls", "/run/pyxis").out
        assert all(root.exists() for root in kept)
    finally:
        cluster.jail("scancel", live, user=user)
        ended(cluster, live)
        for root in (*kept, gone, noted):
            shutil.rmtree(root, ignore_errors=True)


def test_of_jobs_that_create_one_container_one_succeeds(containers: Containers) -> None:
    """and those that take it as it comes all do"""
    cluster, user = containers.cluster, containers.user
    create = f"srun -n1 --overcommit --container-image={IMAGE} --container-name=race:create echo made"
    script = f"for i in 1 2 3; do {create.replace('echo made', 'id -un')} & done; wait"
    take = script.replace(":create", ":no_exec").replace("=race", "=race2")
    done = cluster.jail("bash", "-c", script, user=user)
    assert done.out.split() == [user], done
    assert done.err.count('"create" was passed to --container-name') == 2
    done = cluster.jail("bash", "-c", take, user=user)
    assert done.out.split() == [user] * 3, done
    cluster.jail("enroot", "remove", "--force", "pyxis_race", "pyxis_race2", user=user).ok()


@contextmanager
def data_on(containers: Containers, options: str) -> Iterator[None]:
    """The user's containers on a file system of their own, on one worker."""
    owner = containers_of(containers).stat()
    options += f",mode=700,uid={owner.st_uid},gid={owner.st_gid}"
    with mounted(containers.cluster, f"/mnt/jail/root/home/{containers.user}/.local/share/enroot", options):
        yield


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("size=64k", "has 64.0 KiB free; the image needs more than"),
        ("nr_inodes=4", "more files only (inodes)"),
    ],
)
def test_no_room_for_containers(containers: Containers, options: str, message: str) -> None:
    """is told where, of what, and what to do; a mounted file needs none"""
    on = ("-w", WORKER, f"--container-image={IMAGE}")
    with data_on(containers, options):
        done = containers.run(*on, "--container-name=full", "true")
        assert message in done.err.partition("printing enroot log file:")[0]
        assert done.status == 1
        containers.run(*on, "true").ok()
    assert containers.leftovers() == []


@pytest.mark.parametrize("options", ["nr_inodes=1,mode=700", "mode=777"])
def test_no_place_for_notes_is_no_reason_not_to_run(containers: Containers, options: str) -> None:
    cluster = containers.cluster
    cluster.on(WORKER, "sh", "-c", "mkdir -p -m 700 /run/pyxis; > /var/log/slurm/slurmd.log").ok()
    with mounted(cluster, "/run/pyxis", options):
        done = containers.image("-w", WORKER, "--container-save=/tmp/x.sqsh", "true")
    assert "exported container" in done.err
    log = cluster.on(WORKER, "cat", "/var/log/slurm/slurmd.log").ok()
    assert "the epilog will not look for what this step may leave" in log
    assert "runtime_path=/run/pyxis" in log
    assert "will not look" not in done.err
