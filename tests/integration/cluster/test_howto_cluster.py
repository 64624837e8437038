# SPDX-License-Identifier: Apache-2.0
"""Pages about nodes and jobs, typed line by line in a running cluster: jail-driver.md, jail-plan.md,
slurm-in-the-jail.md.
"""

from __future__ import annotations

import pytest

from tests.documented import blocks_for, lines_for
from tests.integration.jobs import ended, submit
from tests.integration.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

_WORKER = "worker-1"
_PROGRAM = "#!/bin/sh\necho ran on $(hostname)\n"


def test_the_driver_of_a_node(cluster: LocalCluster) -> None:
    for line in lines_for("jail-driver.md", "test_the_driver_of_a_node"):
        cluster.on(_WORKER, "sh", "-c", line).ok()
    # No machine of the tests has a driver: the directory is there, and empty, as the page says.
    assert cluster.on(_WORKER, "ls", "/run/cellblock/driver/current/").ok() == ""


def test_the_plan_has_the_drivers_line(cluster: LocalCluster) -> None:
    (line,) = lines_for("jail-driver.md", "test_the_plan_has_the_drivers_line")
    plan = cluster.on(_WORKER, "cat", "/etc/cellblock/jail.fstab").ok()
    assert line.split() in [each.split() for each in plan.splitlines()]


def test_plugstack(cluster: LocalCluster) -> None:
    (line,) = lines_for("jail-plan.md", "test_plugstack")
    text = cluster.on("controller", "cat", "/etc/slurm/plugstack.conf").ok()
    (used,) = [each for each in text.splitlines() if "spank_jail.so" in each]
    required, plugin, *arguments = line.split()
    assert used.split()[0] == required
    assert used.split()[1].endswith(f"/{plugin}")
    assert set(arguments) <= set(used.split()[2:])


def test_looking_at_plans(cluster: LocalCluster, user: str) -> None:
    one, commands, devices = blocks_for("jail-plan.md", "test_looking_at_plans")
    printing, check, login, command = commands.lines
    for plan in (one, devices):
        typed = printing.replace("FILE", "/run/plan")
        said = cluster.on(_WORKER, "sh", "-c", f"cat > /run/plan; {typed}", stdin=plan.text).ok()
        understood = [line for line in said.splitlines() if not line.startswith("#")]
        assert len(understood) == len(plan.text.strip().splitlines()) - 1
    cluster.on(_WORKER, "sh", "-c", check).ok()
    asked = cluster.on(_WORKER, "sh", "-c", login.replace("ann", user), stdin="id -un\n").ok()
    assert asked.split() == [user]
    assert cluster.on(_WORKER, "sh", "-c", command.replace("CMD ARGS", "id -u")).ok() == "0\n"


def test_a_file_for_every_node(cluster: LocalCluster, user: str) -> None:
    lines = lines_for("slurm-in-the-jail.md", "test_a_file_for_every_node")
    make = "cat > program; chmod +x program; echo held > data; "
    script = make + f"salloc --quiet -N2 sh -euxc '{'; '.join(lines)}; srun cat /run/bcast/data' </dev/null"
    said = cluster.jail("bash", "-lc", script, user=user, stdin=_PROGRAM).ok()
    assert said.count("ran on worker-") == 2
    assert said.count("held") == 2


def test_jobs_end_and_wait_while_the_jail_is_upgraded(cluster: LocalCluster, user: str) -> None:
    page = "slurm-in-the-jail.md"
    reserve, look, delete = lines_for(page, "test_jobs_end_and_wait_while_the_jail_is_upgraded")
    sleeps = ("sleep 600", "--chdir=/", "--output=/dev/null")
    runs = submit(cluster, user, *sleeps)
    cluster.wait_until("it runs", lambda: cluster.job(runs)["JobState"] == "RUNNING")
    cluster.on("controller", "sh", "-c", reserve).ok()
    try:
        waits = submit(cluster, user, "true", *sleeps[1:])
        cluster.wait_until("it waits", lambda: "Reserved" in cluster.job(waits)["Reason"])
        shown = cluster.on("controller", "sh", "-c", look).ok().splitlines()[1:]
        assert [line.split()[0] for line in shown] == [runs]
        cluster.on("controller", "scancel", runs).ok()
        cluster.wait_until(
            "none is left", lambda: len(cluster.on("controller", "sh", "-c", look).ok().splitlines()) == 1
        )
    finally:
        cluster.on("controller", "sh", "-c", delete).ok()
    assert cluster.job(ended(cluster, waits))["JobState"] == "COMPLETED"
