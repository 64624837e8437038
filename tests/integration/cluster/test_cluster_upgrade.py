# SPDX-License-Identifier: Apache-2.0
"""A cluster that runs is upgraded to a newer Slurm, whenever that is interrupted, and taken back."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.cluster import status, stop
from cellblock.cluster.facts import state, upgrade_record
from cellblock.cluster.up import bring_up
from cellblock.errors import CellblockError
from cellblock.events import Events
from tests import documented
from tests.integration.cluster.typed_command import interrupt_command, type_command
from tests.integration.conftest import running_cluster
from tests.integration.local_cluster import LocalCluster
from tests.ports import free_port

pytestmark = pytest.mark.integration

OLD, NEW = "debian13", "debian14"
FILE = """\
accounting: {}
controller: {replicas: %d}
rest: {port: %d}
node_sets:
  - {name: worker, count: 2}
"""
_FIELDS = "jobid,jobname,user,account,partition,state,exitcode,submit,start,end,alloctres,nodelist,workdir"
# Seconds for an upgrade, in which images may have to be built.
_UPGRADE_S = 800
# What an upgrade says when it is in a step: it is killed there. In the order of the steps.
MOMENTS = (
    "back up to",
    "stop slurmdbd",
    "start database",
    "wait for slurmdbd",
    "start controller",
    "wait for jobs",
    "stop worker-1",
    "make the new files",
    "replace files",
    "start slurmctld anew",
    "start worker-2",
    "start login",
    "wait for Slurm",
)
# Of these, so many are tried; all of them take seven minutes.
KILLS = int(os.environ.get("CELLBLOCK_UPGRADE_KILLS", "4"))


@pytest.fixture(params=[1])
def cluster_of_before(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A cluster with the Slurm of before, accounting, a user and so many controllers."""
    with running_cluster("older", OLD, text=FILE % (request.param, free_port())) as running:
        running.add_user("ada")
        yield running


def name_of(cluster: LocalCluster) -> str:
    return cluster.request.name or ""


def upgrade(cluster: LocalCluster, *options: str) -> subprocess.CompletedProcess[str]:
    """`build.py cluster upgrade`, as typed."""
    given = options or ("--variant", NEW, "--yes")
    cluster.shells.close()  # of containers that go
    return type_command(name_of(cluster), "cluster upgrade", "--log", "plain", *given, timeout_s=_UPGRADE_S)


def upgrade_killed(
    cluster: LocalCluster, moment: str, *options: str, by: signal.Signals = signal.SIGKILL
) -> str:
    """The same, sent a signal as soon as it says `moment`; what it said until its end."""
    return interrupt_command(
        name_of(cluster), "cluster upgrade", "--log", "plain", *options, moment=moment, by=by
    )[1]


def used(cluster: LocalCluster, *jobs: str) -> str:
    """What the accounting says of jobs."""
    asked = ("sacct", "-nP", "--allusers", "-j", ",".join(jobs), f"--format={_FIELDS}")
    return cluster.on("controller", *asked).ok()


def submit(cluster: LocalCluster, script: str, *options: str) -> str:
    given = ("-D/home/ada", "-o/home/ada/%j.out", "--parsable", "--mem=100", *options, "--wrap", script)
    return cluster.jail("sbatch", *given, user="ada").ok().strip()


def state_of(cluster: LocalCluster, job: str) -> str:
    return cluster.on("controller", "sacct", "-nXP", "-j", job, "--format=state").out.strip()


def wait_for(cluster: LocalCluster, job: str, what: str) -> None:
    cluster.wait_until(f"job {job} is {what}", lambda: state_of(cluster, job) == what)


def release_of(cluster: LocalCluster, host: str) -> str:
    return cluster.on(host, "cat", "/usr/lib/cellblock/slurm-release").ok().strip()


@pytest.mark.parametrize("cluster_of_before", [2], indirect=True)
def test_jobs_queue_and_accounting_outlive_an_upgrade_and_the_way_back(
    cluster_of_before: LocalCluster,
) -> None:
    cluster = cluster_of_before
    over = [submit(cluster, "echo over"), submit(cluster, "exit 3"), submit(cluster, "true", "--array=1-3")]
    for job, what in zip(over, ("COMPLETED", "FAILED"), strict=False):
        wait_for(cluster, job, what)
    cluster.wait_until("the array is over", lambda: state_of(cluster, over[2]).split() == ["COMPLETED"] * 3)
    runs = submit(cluster, "sleep 60; echo $SLURM_JOB_ID ended > /home/ada/ran")
    wait_for(cluster, runs, "RUNNING")
    waits = submit(cluster, "echo waited", f"--dependency=afterok:{runs}")
    held = submit(cluster, "srun hostname", "--hold", "-N2")
    before = used(cluster, *over)
    began = used(cluster, runs).split("|")[8]
    assert before.count("COMPLETED") >= 4

    # What the page types, and nothing else.
    plan, go, plan_back, go_back = (
        line.removeprefix("python3 build.py cluster upgrade ").split()
        for line in documented.lines_for(
            "cluster-upgrade.md", "test_jobs_queue_and_accounting_outlive_an_upgrade_and_the_way_back"
        )
    )
    planned = upgrade(cluster, *plan)
    assert planned.returncode == 0, planned.stderr
    assert "Slurm 24.11 (debian13) to 26.05 (debian14)" in planned.stdout
    assert f"jobs that run, for whose end the nodes wait: 1 ({runs})" in planned.stdout
    asked = upgrade(cluster, "--variant", NEW)
    assert asked.returncode == 2
    assert "say --yes" in asked.stderr
    assert upgrade_record.read(name_of(cluster)) is None

    done = upgrade(cluster, *go)
    assert done.returncode == 0, done.stderr
    assert "cluster upgrade --back" in done.stdout
    for host in ("controller", "controller-2", "accounting", "worker-2", "login"):
        assert release_of(cluster, host) == "26.05"
    assert "26.05" in cluster.jail("srun", "--version", user="ada").ok()
    # What was over, field by field and step by step; what ran did so to its end.
    assert used(cluster, *over) == before
    wait_for(cluster, runs, "COMPLETED")
    assert used(cluster, runs).split("|")[8] == began
    assert cluster.jail("cat", "/home/ada/ran", user="ada").ok() == f"{runs} ended\n"
    wait_for(cluster, waits, "COMPLETED")
    cluster.jail("scontrol", "release", held, user="ada").ok()
    wait_for(cluster, held, "COMPLETED")
    assert sorted(cluster.jail("cat", f"/home/ada/{held}.out").ok().split()) == ["worker-1", "worker-2"]
    now = status(name_of(cluster))
    assert (now.variant, now.release, now.ready) == (NEW, "26.05", True)
    dumps = list((state.folder(name_of(cluster)) / "archive").glob("database-before-26.05-*.sql.gz"))
    assert [dump.stat().st_mode & 0o777 for dump in dumps] == [0o600]

    busy = submit(cluster, "sleep 600")
    wait_for(cluster, busy, "RUNNING")
    assert "goes back from Slurm 26.05 to 24.11" in upgrade(cluster, *plan_back).stdout
    refused = upgrade(cluster, *go_back)
    assert refused.returncode == 2
    assert f"runs 1 jobs ({busy})" in refused.stderr
    cluster.on("controller", "scancel", busy).ok()
    wait_for(cluster, busy, "CANCELLED by 0")
    for moment in ("cluster: stop", "replace files", "load the database", "start containers"):
        assert moment in upgrade_killed(cluster, moment, "--back", "--yes")
    with pytest.raises(CellblockError, match="is being taken back"):
        bring_up(cluster.request, Events())
    back = upgrade(cluster, *go_back)
    assert back.returncode == 0, back.stderr
    assert release_of(cluster, "controller") == "24.11"
    assert "24.11" in cluster.jail("srun", "--version", user="ada").ok()
    assert used(cluster, *over) == before
    # It ran when the backup was made. On a slow machine it has run again by now.
    assert cluster.job(runs)["Requeue"] == "1"
    cluster.on("controller", "scontrol", "update", f"jobid={runs}", "starttime=now")
    wait_for(cluster, runs, "COMPLETED")
    assert cluster.jail("cat", "/home/ada/ran", user="ada").ok() == f"{runs} ended\n"
    assert upgrade_record.read(name_of(cluster)) is None
    # And what `up` is asked for is what runs.
    assert not bring_up(cluster.request, Events()).status.changed


def test_it_goes_on_after_it_was_killed_at_any_moment(cluster_of_before: LocalCluster) -> None:
    cluster = cluster_of_before
    over = submit(cluster, "true")
    wait_for(cluster, over, "COMPLETED")
    runs = submit(cluster, "sleep 45; echo $SLURM_JOB_ID ended > /home/ada/ran")
    waits = submit(cluster, "true", "--begin=now+1hour")
    before = used(cluster, over)
    wait_for(cluster, runs, "RUNNING")
    met = []
    tried = MOMENTS[1 :: len(MOMENTS) // KILLS] if len(MOMENTS) > KILLS else MOMENTS
    for moment in tried:
        said = upgrade_killed(cluster, moment, "--variant", NEW, "--yes")
        met += [moment] if moment in said else []
        if moment == tried[1]:
            with pytest.raises(CellblockError, match="is being upgraded"):
                bring_up(cluster.request, Events())
            with pytest.raises(CellblockError, match="`down` would leave"):
                stop(name_of(cluster), Events())
    # Two are one: what was killed at its beginning has done it, or the jail's files were made before.
    assert len(met) >= len(tried) * 3 // 4, met
    done = upgrade(cluster)
    if done.returncode:
        assert "already" in done.stderr, done.stderr
    cluster.shells.close()
    wait_for(cluster, runs, "COMPLETED")
    assert cluster.jail("cat", "/home/ada/ran", user="ada").ok() == f"{runs} ended\n"
    assert used(cluster, over) == before
    assert cluster.on("controller", "squeue", "--all", "-h", "-o", "%A").ok().split() == [waits]
    assert status(name_of(cluster)).ready
    files = sorted(path.name for path in state.folder(name_of(cluster)).glob("before-upgrade-*"))
    assert len(files) == 1, files
    wait_for(cluster, submit(cluster, "srun true", "-N2"), "COMPLETED")


def test_nodes_whose_jobs_go_on_serve_as_they_were(cluster_of_before: LocalCluster) -> None:
    cluster = cluster_of_before
    long = submit(cluster, "sleep 900", "--requeue")
    wait_for(cluster, long, "RUNNING")
    late = upgrade(cluster, "--variant", NEW, "--yes", "--wait", "3s")
    assert late.returncode == 1
    assert f"jobs {long} still run" in late.stderr
    assert "--wait 0" in late.stderr
    assert release_of(cluster, "controller") == "26.05"
    assert release_of(cluster, "worker-1") == "24.11"
    assert state_of(cluster, long) == "RUNNING"
    shown = type_command(name_of(cluster), "status", timeout_s=60)
    assert shown.returncode == 1
    assert "an upgrade is not over" in shown.stdout
    said = upgrade_killed(cluster, "wait for jobs", "--variant", NEW, "--yes", by=signal.SIGINT)
    assert "wait for jobs" in said
    states = cluster.on("controller", "sinfo", "--noheader", "--format=%T").ok()
    assert "drain" not in states
    # Commands and nodes of before, slurmctld and slurmdbd of after.
    short = submit(cluster, "srun hostname", "-N2")
    wait_for(cluster, short, "COMPLETED")
    assert len(cluster.jail("cat", f"/home/ada/{short}.out").ok().split()) == 2
    done = upgrade(cluster, "--variant", NEW, "--yes", "--wait", "0")
    assert done.returncode == 0, done.stderr
    assert release_of(cluster, "worker-1") == "26.05"
    cluster.wait_until("the long one waits again", lambda: state_of(cluster, long) in ("PENDING", "RUNNING"))
    cluster.on("controller", "scancel", long).ok()


def test_a_conversion_is_neither_hurried_nor_ended(cluster_of_before: LocalCluster) -> None:
    cluster, name = cluster_of_before, name_of(cluster_of_before)
    wait_for(cluster, submit(cluster, "true"), "COMPLETED")
    container = f"cellblock-{name}-accounting"
    engine = ("podman", "--cgroup-manager=cgroupfs")
    table = f"{name}_job_table"

    def sql(text: str) -> str:
        return cluster.on("database", "mariadb", "-Ns", "slurm_acct_db", "-e", text).ok()

    archive = state.folder(name) / "archive"
    assert list(archive.iterdir()) == [], "a database that nobody has written to is not dumped"
    # As a release before wrote it: a column is missing, and the mark is of then.
    sql(f"ALTER TABLE {table} DROP COLUMN script_hash_inx")
    sql("UPDATE cellblock_release SET slurm_release = '24.05'")
    # ALTER TABLE waits for this one's end: longer than any wait of an entrypoint or of `up`.
    held = f"START TRANSACTION; SELECT COUNT(*) FROM {table}; SELECT SLEEP(100);"
    lock = subprocess.Popen(
        [*engine[:1], "exec", f"cellblock-{name}-database", "mariadb", "-Ns", "slurm_acct_db", "-e", held],
        stdout=subprocess.DEVNULL,
    )
    began = time.monotonic()
    try:
        subprocess.run([*engine[:1], "restart", container], check=True, capture_output=True)
        cluster.shells.close()
        converting = ("test", "-e", "/run/slurmdbd/converting")
        cluster.wait_until("it converts", lambda: cluster.on("accounting", *converting).status == 0)
        with pytest.raises(CellblockError, match="slurmdbd is converting the database"):
            stop(name, Events())
        (dump,) = archive.glob("database-before-24.11-*.sql.gz")
        assert dump.stat().st_mode & 0o777 == 0o600
        listens = ("bash", "-c", ": < /dev/tcp/127.0.0.1/6819")
        while lock.poll() is None:
            assert cluster.on("accounting", *converting).status == 0
            assert cluster.on("accounting", *listens).status != 0
            time.sleep(2)
        assert time.monotonic() - began > 95
        cluster.wait_until("it is over", lambda: cluster.on("accounting", *converting).status != 0)
        assert cluster.on("accounting", *listens).status == 0
    finally:
        lock.kill()
    logs = subprocess.run(
        [*engine[:1], "logs", container], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ).stdout
    assert "adding column script_hash_inx" in logs
    assert "No conversion needed" in logs, "what slurmdbd -u says of it, which knows nothing of columns"
    wait_for(cluster, submit(cluster, "true"), "COMPLETED")
    assert sql("SELECT slurm_release FROM cellblock_release").strip() == "24.11"


def test_an_older_slurm_does_not_start_on_newer_data(cluster_of_before: LocalCluster) -> None:
    cluster, name = cluster_of_before, name_of(cluster_of_before)

    def log_of_restarted(host: str) -> str:
        container = f"cellblock-{name}-{host}"
        subprocess.run(["podman", "restart", container], check=True, capture_output=True)
        cluster.shells.close()
        asked = ["podman", "inspect", "--format", "{{.State.Status}}", container]
        cluster.wait_until(
            f"{host} has ended",
            lambda: subprocess.run(asked, capture_output=True, text=True).stdout.strip() == "exited",
        )
        return subprocess.run(
            ["podman", "logs", "--tail=20", container],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ).stdout

    folder: Path = state.folder(name)
    mark = "UPDATE slurm_acct_db.cellblock_release SET slurm_release = '26.05'"
    cluster.on("database", "mariadb", "-e", mark).ok()
    tables = cluster.on("database", "mariadb-dump", "--skip-dump-date", "slurm_acct_db").ok()
    said = log_of_restarted("accounting")
    assert "the database of the accounting was written by Slurm 26.05, which this image's Slurm 24.11" in said
    assert cluster.on("database", "mariadb-dump", "--skip-dump-date", "slurm_acct_db").ok() == tables
    (folder / "slurmctld" / "cellblock-release").write_text("26.05\n")
    time.sleep(6)  # slurmctld writes its state down
    said = log_of_restarted("controller")
    assert "slurmctld's state in /var/lib/slurm/slurmctld was written by Slurm 26.05" in said
    assert "it reads 23.02 23.11 24.05" in said
    with pytest.raises(CellblockError, match=r"24\.11 does not read what 26\.05 wrote"):
        bring_up(cluster.request, Events())
