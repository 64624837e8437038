# SPDX-License-Identifier: Apache-2.0
"""What a step could not clear away goes in the job's epilog; what a user called like a job stays."""

from __future__ import annotations

import pytest

from tests.integration.jobs import ended, fresh_path, home, submit
from tests.integration.pyxis.conftest import IMAGE, Containers

pytestmark = pytest.mark.integration

_KEEPERS = """for process in /proc/[0-9]*; do
    if read -r name < "$process/comm" && [ "$name" = pyxis-keeper ]; then echo "${process#/proc/}"; fi
done 2>/dev/null; true"""


def test_the_epilog_removes_what_a_killed_keeper_leaves(containers: Containers) -> None:
    cluster, user = containers.cluster, containers.user
    folder = home(cluster, user)
    go, runs = (fresh_path(cluster, user, name) for name in ("keeper-go", "keeper-runs"))
    options = f"--container-image={IMAGE} --container-save=never.sqsh --container-mounts=/home/{user}:/mnt"
    script = f"echo > /mnt/{runs.name}; while [ ! -e /mnt/{go.name} ]; do sleep 0.1; done"
    job = submit(cluster, user, f"srun {options} sh -c '{script}'", "-wworker-1", f"-D/home/{user}")
    root = folder / f".local/share/enroot/pyxis_{job}.0"
    try:
        cluster.wait_until("it runs", runs.exists)
        assert root.is_dir()
        pids = cluster.on("worker-1", "sh", "-c", _KEEPERS).ok().split()
        assert pids
        cluster.on("worker-1", "sh", "-c", f"kill -9 {' '.join(pids)}").ok()
    finally:
        go.touch()
        ended(cluster, job)
        go.unlink()
        runs.unlink(missing_ok=True)
    cluster.wait_until("the epilog removes it", lambda: not root.exists())
    assert not (folder / "never.sqsh").exists()
    assert containers.leftovers() == []


def test_a_name_like_that_of_a_job_or_a_step_is_kept(containers: Containers) -> None:
    """With names for all jobs 7_one is one, and 22.10 is a release: the epilog of job 7 or 22 leaves them."""
    cluster, user = containers.cluster, containers.user
    names = ("${SLURM_JOB_ID}_one", "$SLURM_JOB_ID.10")
    named = [f"srun --container-image={IMAGE} --container-name={name} true" for name in names]
    saved = f"srun --container-image={IMAGE} --container-save=/tmp/x.sqsh true"
    job = submit(cluster, user, "; ".join([*named, saved]), "-wworker-1", "-o/dev/null")
    ended(cluster, job)
    # A job after it: by then the epilog of the first is over.
    containers.run("-wworker-1", "--exclusive", "true").ok()
    kept = (f"pyxis_{job}_one", f"pyxis_{job}.10")
    assert all((home(cluster, user) / ".local/share/enroot" / name).is_dir() for name in kept)
    cluster.jail("enroot", "remove", "--force", *kept, user=user).ok()
