# SPDX-License-Identifier: Apache-2.0
"""A cluster with a database and slurmdbd: what jobs used is kept, limits hold, and nobody needs a person."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import check_call

import pytest

from cellblock.cluster import stop
from cellblock.cluster.engine.container_specs import container_name
from cellblock.cluster.up import bring_up
from cellblock.errors import CellblockError, DefinitionError
from cellblock.events import Events
from tests import documented
from tests.integration.conftest import default_variant, other_variants, running_cluster
from tests.integration.jobs import accounted_state
from tests.integration.local_cluster import LocalCluster, podman

pytestmark = pytest.mark.integration

FILE = """\
accounting: {purge: {jobs: 1hours, steps: 1hours}}
node_sets:
  - {name: cpu, count: 1, features: [small]}
  - {name: gpu, count: 1, gres: {"gpu:a100": 4}, weight: 10}
partitions:
  - {name: main, default: true, max_time: 7d}
  - {name: big, node_sets: [gpu], priority: 5}
"""

# Opens connections, says on each that a message of a gigabyte follows, sends so much of it, and waits.
HOLD = """\
import socket, sys, time
held = [socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5) for _ in range(int(sys.argv[3]))]
for one in held:
    try:
        for part in range(int(sys.argv[4])):
            one.sendall(bytes(1 << 20) if part else b"\\x40\\0\\0\\0")
    except OSError:
        pass
print("held", len(held), flush=True)
time.sleep(300)
"""


@pytest.fixture(scope="module", params=[default_variant(), *other_variants()])
def accounted(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A cluster with accounting and two node sets."""
    with running_cluster("accounting", request.param, text=FILE) as running:
        yield running


def jobs(cluster: LocalCluster, *options: str) -> list[list[str]]:
    """What sacct says of jobs: id, user, account, state and resources of each."""
    asked = ("sacct", "-nXP", "--allusers", "--format=jobid,user,account,state,alloctres", *options)
    return [line.split("|") for line in cluster.on("controller", *asked).ok().splitlines()]


def test_a_job_is_accounted_for_with_its_user_account_and_resources(accounted: LocalCluster) -> None:
    accounted.add_user("ada")
    asked = ("--partition=big", "--gres=gpu:a100:2", "sh", "-c", "echo $SLURM_JOB_ID $CUDA_VISIBLE_DEVICES")
    number, devices = accounted.jail("srun", "-D/", *asked, user="ada").ok().split()
    assert devices == "0,1"
    accounted.wait_until(
        "the job is over in the accounting", lambda: accounted_state(accounted, number) == "COMPLETED"
    )
    ((_, user, account, _, resources),) = jobs(accounted, "-j", number)
    assert (user, account) == ("ada", "users")
    assert "gres/gpu=2" in resources
    assert "mem=" in resources
    # Who submitted it sees it, and nobody else who is no operator.
    asked = ("sacct", "-nXP", "--format=jobid")
    accounted.wait_until("ada sees it", lambda: number in accounted.jail(*asked, user="ada").out.split())
    accounted.add_user("bob")
    others = accounted.jail("sacct", "-nXP", "--allusers", "--format=jobid", user="bob").out.split()
    assert number not in others


def test_nodes_are_what_the_file_says(accounted: LocalCluster) -> None:
    asked = ("scontrol", "show", "node", "gpu-1", "--oneliner")
    shown = accounted.on("controller", *asked).ok()
    assert "Gres=gpu:a100:4" in shown
    assert "ActiveFeatures=gpu" in shown
    where = accounted.client("srun", "-D/", "--constraint=small", "hostname", user="root").ok().strip()
    assert where == "cpu-1"


def test_a_limit_holds(accounted: LocalCluster) -> None:
    accounted.add_user("carl")
    accounted.on("controller", "sacctmgr", "-iQ", "modify", "user", "carl", "set", "maxjobs=1").ok()
    first = (
        accounted.jail("sbatch", "-D/", "-o/dev/null", "--parsable", "--wrap", "sleep 600", user="carl")
        .ok()
        .strip()
    )
    accounted.wait_until(
        "the first job runs",
        lambda: accounted.on("controller", "squeue", "-hj", first, "-o", "%T").out.strip() == "RUNNING",
    )
    second = (
        accounted.jail("sbatch", "-D/", "-o/dev/null", "--parsable", "--wrap", "true", user="carl")
        .ok()
        .strip()
    )
    accounted.wait_until(
        "the second waits for the limit",
        lambda: (
            accounted.on("controller", "squeue", "-hj", second, "-o", "%r").out.strip() == "AssocMaxJobsLimit"
        ),
    )
    accounted.on("controller", "scancel", first, second).ok()


@pytest.mark.others_at_night
def test_what_the_page_says_works_for_a_user(accounted: LocalCluster) -> None:
    accounted.add_user("ada")
    lines = documented.lines_for("accounting.md", "test_what_the_page_says_works_for_a_user")
    assert len(lines) == 2
    for line in lines:
        assert accounted.jail("sh", "-c", line, user="ada").ok()


@pytest.mark.others_at_night
def test_what_the_page_says_works_for_the_operator(accounted: LocalCluster) -> None:
    accounted.add_user("ada")
    lines = documented.lines_for("accounting.md", "test_what_the_page_says_works_for_the_operator")
    assert len(lines) == 6
    for line in lines:
        accounted.on("controller", "sh", "-c", line).ok()
    asked = ("sacctmgr", "-nP", "show", "associations", "user=ada", "format=account,maxjobs")
    assert {"physics|1", "users|1"} == set(accounted.on("controller", *asked).ok().split())


def two_days_ago() -> int:
    return int(time.time()) - 2 * 86400


def test_old_records_go_to_the_archive_and_come_back(accounted: LocalCluster) -> None:
    accounted.add_user("gina")
    number = accounted.jail("srun", "-D/", "sh", "-c", "echo $SLURM_JOB_ID", user="gina").ok().strip()
    accounted.wait_until(
        "it is over in the accounting", lambda: accounted_state(accounted, number) == "COMPLETED"
    )
    # A job of two days ago. slurmctld may still say more of it.
    table = f"slurm_acct_db.{accounted.request.name}_job_table"
    times = ", ".join(f"time_{name} = {two_days_ago()}" for name in ("submit", "eligible", "start", "end"))
    seen = ("sacct", "-nXP", "--allusers", "--starttime=now-3days", "--format=jobid")

    def purged() -> bool:
        accounted.on("database", "mariadb", "-e", f"UPDATE {table} SET {times} WHERE id_job = {number}").ok()
        accounted.on("controller", "sacctmgr", "-i", "archive", "dump").ok()
        return number not in accounted.on("controller", *seen).ok().split()

    accounted.wait_until("the job is purged", purged)
    (line,) = documented.lines_for("accounting.md", "test_old_records_go_to_the_archive_and_come_back")
    # What slurmctld said once more was purged once more: the job is in each file, and can be loaded once.
    files = (accounted.root.parent.parent / "archive").glob("*_job_table_archive_*")
    newest_first = sorted(files, key=lambda file: file.stat().st_mtime_ns, reverse=True)

    def is_back() -> bool:
        return number in accounted.on("controller", *seen).ok().split()

    while newest_first and not is_back():
        accounted.on("controller", "sh", "-c", line.replace("FILE", newest_first.pop(0).name)).ok()
    assert is_back()


def test_users_change_nothing_in_the_accounting(accounted: LocalCluster) -> None:
    accounted.add_user("dora")
    for command in (
        ("modify", "user", "dora", "set", "adminlevel=admin"),
        ("add", "account", "mine"),
        ("delete", "user", "ada"),
    ):
        refused = accounted.jail("sacctmgr", "-iQ", *command, user="dora")
        assert refused.status != 0, command
    # Root in the jail is nobody there, too.
    assert accounted.jail("sacctmgr", "-iQ", "add", "account", "mine").status != 0
    levels = accounted.on("controller", "sacctmgr", "-nP", "show", "user", "dora", "format=adminlevel").ok()
    assert levels.strip() == "None"


@pytest.mark.others_at_night
def test_the_daemons_have_no_right_that_they_do_not_need(accounted: LocalCluster) -> None:
    for host, daemon, uid in (("accounting", "slurmdbd", "64030"), ("database", "mariadbd", "65521")):
        script = f"grep -l -x {daemon} /proc/[0-9]*/comm | while read f; do cat ${{f%/comm}}/status; done"
        status = accounted.on(host, "sh", "-c", script).ok()
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        assert fields["Uid"].split() == [uid] * 4
        for capabilities in ("CapPrm", "CapEff", "CapBnd", "CapAmb", "CapInh"):
            assert int(fields[capabilities], 16) == 0, capabilities
        assert fields["NoNewPrivs"].strip() == "1"
    number = accounted.numbers_of("accounting", "slurmdbd")[0]
    assert " unlimited" not in accounted.on("accounting", "grep", "Max data", f"/proc/{number}/limits").ok()
    # The password is in no argument, and neither key nor password are where they are not needed.
    assert not [line for _, line in accounted.processes("database") if "IDENTIFIED" in line or "pass" in line]
    assert accounted.on("database", "test", "-e", "/run/secrets/cellblock/munge.key").status != 0
    assert accounted.on("controller", "test", "-e", "/run/secrets/cellblock/database-password").status != 0
    readable = accounted.on("accounting", "stat", "-c", "%a %U", "/run/slurmdbd/slurmdbd.conf").ok()
    assert readable.split() == ["600", "slurm"]


@pytest.mark.others_at_night
def test_root_of_the_database_does_not_come_over_the_network(accounted: LocalCluster) -> None:
    for user in ("root", "mysql", ""):
        asked = ("mariadb", "--protocol=tcp", "--host=database", f"--user={user}", "--execute=SELECT 1")
        assert accounted.on("database", *asked).status != 0
    greet = "import socket; print(socket.create_connection(('database', 3306), 30).recv(9))"
    assert "b''" in accounted.jail("python3", "-c", greet).ok()  # it takes 16 MB of who has not logged in


@contextmanager
def held(cluster: LocalCluster, user: str, *arguments: str) -> Iterator[None]:
    """A job of the user's that holds connections, as HOLD does."""
    cluster.add_user(user)
    (cluster.root / "home" / user / "hold.py").write_text(HOLD)
    said = cluster.root / "home" / user / "held"
    said.unlink(missing_ok=True)
    run = f"python3 hold.py {' '.join(arguments)}"
    asked = ("sbatch", "--parsable", f"-D/home/{user}", "-oheld", "--wrap", run)
    number = cluster.jail(*asked, user=user).ok().strip()
    try:
        cluster.wait_until("it holds them", lambda: said.exists() and "held" in said.read_text())
        yield
    finally:
        cluster.on("controller", "scancel", number).ok()


@pytest.mark.parametrize(
    ("host", "port", "count"), [("accounting", "6819", "150"), ("database", "3306", "600")]
)
def test_connections_that_are_left_open_keep_nobody_from_the_accounting(
    accounted: LocalCluster, host: str, port: str, count: str
) -> None:
    with held(accounted, "gail", host, port, count, "0"):
        accounted.jail("timeout", "20", "sacct", "-nXP", user="gail").ok()
        accounted.on("controller", "timeout", "20", "sacctmgr", "-n", "show", "cluster").ok()


def test_messages_of_nobodys_do_not_fill_slurmdbds_memory(accounted: LocalCluster) -> None:
    def memory_mb() -> int:
        number = accounted.numbers_of("accounting", "slurmdbd")[0]
        look = ("awk", "/^VmRSS:/ { print int($2 / 1024) }", f"/proc/{number}/status")
        return int(accounted.on("accounting", *look).ok())

    before = memory_mb()
    with held(accounted, "gail", "accounting", "6819", "4", "300"):
        assert memory_mb() - before < 400
        accounted.jail("timeout", "20", "sacct", "-nXP", user="gail").ok()


def test_a_list_of_billions_of_nodes_is_answered_at_once(accounted: LocalCluster) -> None:
    accounted.jail("timeout", "20", "sacct", "-nX", "--nodelist=a[0-65535]b[0-65535]", user="gail").ok()


@pytest.mark.others_at_night
def test_slurmdbd_and_the_database_that_are_killed_are_there_again(accounted: LocalCluster) -> None:
    for name, daemon in (("accounting", "slurmdbd"), ("database", "mariadbd")):
        (number,) = accounted.numbers_of(name, daemon)
        accounted.on(name, "sh", "-c", f"kill -KILL {number}").ok()
        accounted.wait_until(
            f"{daemon} is there again", lambda: accounted.on("controller", "sacct", "-nXP").status == 0
        )


def test_a_new_user_submits_though_slurmdbd_could_not_tell_slurmctld(accounted: LocalCluster) -> None:
    """It says so once: so it is, too, when slurmctld's registration was lost."""
    if accounted.status.release == "22.05":
        pytest.skip("slurmctld 22.05 asks slurmdbd for associations when it starts alone")
    accounted.on("controller", "rm", "-f", "/var/lib/extrausers/.configured-anew").ok()
    name = container_name(accounted.request.name or "", "accounting")
    pid = podman("inspect", "--format={{.State.Pid}}", name).strip()
    rule = ["OUTPUT", "-p", "tcp", "--dport", "6817", "-j", "REJECT", "--reject-with", "tcp-reset"]
    inside = ["nsenter", "-t", pid, "-n", "iptables"]
    check_call([*inside, "-I", *rule])
    try:
        accounted.add_user("fritz")
    finally:
        check_call([*inside, "-D", *rule])
    accounted.jail("srun", "-D/", "true", user="fritz").ok()


def test_no_name_of_a_user_has_slurmctld_configured_again_and_again(accounted: LocalCluster) -> None:
    """the accounting knows Zoe as zoe; after each new user above her it was looked for in vain"""
    name = container_name(accounted.request.name or "", "controller")
    before = podman("logs", name).count("it is configured anew")
    accounted.jail("sh", "-c", "echo Zoe:x:4321:100::/home:/bin/sh >>/etc/passwd").ok()
    try:
        listed = ("sacctmgr", "-nP", "list", "user", "format=user")
        accounted.wait_until(
            "she has an association", lambda: "zoe" in accounted.on("controller", *listed).ok().split()
        )
        # Who comes later has one when slurmctld was asked for her.
        accounted.add_user("toni")
        assert podman("logs", name).count("it is configured anew") == before
    finally:
        accounted.jail("sed", "-i", "/^Zoe:/d", "/etc/passwd").ok()


def test_down_and_up_keep_jobs_that_wait_and_what_was_used(accounted: LocalCluster) -> None:
    accounted.add_user("fred")
    held = (
        accounted.jail("sbatch", "--hold", "-D/", "-o/dev/null", "--parsable", "--wrap", "true", user="fred")
        .ok()
        .strip()
    )
    before = [job for job in jobs(accounted) if job[3] == "COMPLETED"]
    assert before
    stop(accounted.request.name or "", Events())
    bring_up(accounted.request, Events())
    assert accounted.on("controller", "squeue", "-hj", held, "-o", "%r").ok().strip() == "JobHeldUser"
    after = jobs(accounted)
    assert [job for job in before if job not in after] == []
    accounted.on("controller", "scancel", held).ok()


@pytest.mark.others_at_night
def test_the_file_is_wrong_and_what_runs_goes_on(accounted: LocalCluster, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(FILE.replace("max_time: 7d", "max_time: sometimes"))
    with pytest.raises(DefinitionError, match="no time"):
        bring_up(replace(accounted.request, file=file), Events())
    # What no schema knows, slurmctld says, and one that is thrown away.
    before = accounted.on("controller", "cat", "/proc/1/stat").ok()
    for wrong, says in (("NoSuchKey=1", "NoSuchKey"), ("PriorityType=priority/none_such", "none_such")):
        file.write_text(f"{FILE}slurm: {{extra: {{slurm.conf: '{wrong}'}}}}\n")
        with pytest.raises(CellblockError, match=says) as caught:
            bring_up(replace(accounted.request, file=file), Events())
        assert "what runs is left as it is" in caught.value.message
    started = [stat.split()[21] for stat in (before, accounted.on("controller", "cat", "/proc/1/stat").ok())]
    assert started[0] == started[1]
    assert accounted.on("controller", "sinfo", "-h").status == 0
    # What it takes is taken.
    file.write_text(f"{FILE}slurm: {{extra: {{slurm.conf: 'MaxArraySize=777'}}}}\n")
    bring_up(replace(accounted.request, file=file), Events())
    assert "= 777" in accounted.on("controller", "sh", "-c", "scontrol show config | grep MaxArraySize").ok()
