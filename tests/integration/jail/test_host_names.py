# SPDX-License-Identifier: Apache-2.0
"""An srun that says that it is on a host that there is none of: slurmctld does not wait for its address."""

from __future__ import annotations

import subprocess

import pytest

from tests.integration.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.every_slurm]

# Debian's slurmctld asked ten times for each, with a second in between and its locks held.
_STEPS = 8
_SOURCE = """
#include <stdio.h>
#include <stdlib.h>
int gethostname(char *name, size_t size) { return snprintf(name, size, "%s", getenv("HOST_NAME")) < 0; }
"""


def test_steps_of_unknown_hosts_leave_slurmctld_to_others(cluster: LocalCluster, user: str) -> None:
    library = cluster.root / "home" / user / "host_name.so"
    compiler = ["cc", "-shared", "-fPIC", "-xc", "-", "-o", str(library)]
    subprocess.run(compiler, input=_SOURCE, text=True, check=True)
    library.chmod(0o755)
    held = cluster.jail("salloc", "--no-shell", "--nodelist=worker-1", user=user)
    job = held.err.split("job allocation ")[1].split()[0]
    # As the user's own programs could, which speak Slurm's protocol.
    step = f"LD_PRELOAD=./host_name.so HOST_NAME=nowhere-$i srun --overlap --jobid={job} sleep 600"
    start = f"for i in $(seq {_STEPS}); do {step} >/dev/null 2>&1 & done"
    cluster.jail("bash", "-c", f"cd; {start}", user=user).ok()
    count = ("squeue", "--noheader", "--steps", "--format=%j", f"--jobs={job}")
    cluster.wait_until(
        "all steps run", lambda: cluster.on("controller", *count).out.split().count("sleep") == _STEPS
    )
    # Each ends with an error when there is no answer in ten seconds (MessageTimeout).
    cluster.on("controller", "scancel", job).ok()
    for _ in range(3):
        cluster.on("controller", "squeue").ok()
