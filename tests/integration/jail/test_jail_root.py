# SPDX-License-Identifier: Apache-2.0
"""Root in the jail, and any system user that it becomes, is nobody to Slurm by default."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from cellblock.cluster import PROOF_USER, prove
from cellblock.events import Events
from tests.integration.conftest import running_cluster
from tests.integration.escape.ways.rogue import Place, configure_slurmd
from tests.integration.jobs import sbatch, srun, submit
from tests.integration.local_cluster import Done, LocalCluster

pytestmark = pytest.mark.integration

NOBODY = "65534"
# Of images/base.
SLURM, MUNGE = "64030", "65520"
REFUSED = "Root in the jail and system users (here {uid}) submit no jobs. Become a user first: `su - USER`"


def as_id(cluster: LocalCluster, uid: str, *command: str, gid: str = "") -> Done:
    """What root inside says as somebody else."""
    become = ("setpriv", "--reuid", uid, "--regid", gid or uid, "--clear-groups")
    return cluster.jail(*become, *command)


def vouched_for(cluster: LocalCluster, hostname: str, become: str) -> tuple[str, str]:
    """The uid and the gid that the munged of a container's jail vouches for."""
    script = f"{become} munge --no-input | {become} unmunge"
    shown = cluster.on(hostname, "jail-enter", "--", "sh", "-c", script).ok()
    uid, gid = (re.search(rf"^{field}:.*\((\d+)\)$", shown, re.MULTILINE) for field in ("UID", "GID"))
    assert uid, shown
    assert gid, shown
    return uid[1], gid[1]


def test_a_user_whom_the_controller_does_not_know_yet_is_told_so(cluster: LocalCluster) -> None:
    """Who pastes `useradd ada; su - ada -c 'srun hostname'` is faster than the accounts are copied."""
    done = as_id(cluster, "4711", "srun", "hostname")
    assert done.status != 0
    assert "slurmctld does not know user 4711. A user who was just made is known within a second" in done.err


@pytest.mark.needs_munge
@pytest.mark.parametrize("hostname", ["login", "worker-1"])
@pytest.mark.parametrize("uid", ["0", "1", "999", "60001", SLURM, MUNGE, "65533", "65534", "65535"])
def test_munge_vouches_for_no_system_user(cluster: LocalCluster, hostname: str, uid: str) -> None:
    become = f"setpriv --reuid {uid} --regid 100 --clear-groups"
    assert vouched_for(cluster, hostname, become) == (NOBODY, "100")


@pytest.mark.needs_munge
@pytest.mark.parametrize("gid", ["0", "42", "99", "101", "999", "60001", SLURM, MUNGE, "65535"])
def test_munge_vouches_for_no_system_group(cluster: LocalCluster, gid: str) -> None:
    become = f"setpriv --reuid 1000 --regid {gid} --clear-groups"
    assert vouched_for(cluster, "login", become) == ("1000", NOBODY)


@pytest.mark.needs_munge
@pytest.mark.parametrize("hostname", ["login", "worker-1"])
@pytest.mark.parametrize("uid", ["1000", "60000", "65536", "1000000"])
def test_munge_vouches_for_users(cluster: LocalCluster, hostname: str, uid: str) -> None:
    become = f"setpriv --reuid {uid} --regid {uid} --clear-groups"
    assert vouched_for(cluster, hostname, become) == (uid, uid)


@pytest.mark.needs_munge
def test_a_credential_that_is_asked_for_an_hour_is_remembered_for_minutes(
    cluster: LocalCluster, user: str
) -> None:
    made = cluster.jail("sh", "-c", "munge --no-input --ttl=3600 | unmunge", user=user).ok()
    assert re.search(r"^TTL: +300$", made, re.MULTILINE)


@pytest.mark.needs_munge
def test_munge_on_the_node_vouches_for_root(cluster: LocalCluster) -> None:
    """slurmd's own, or it would be nobody, too."""
    done = cluster.on("worker-1", "sh", "-c", "munge --no-input | unmunge | grep ^UID:")
    assert done.ok().strip().endswith("(0)")


# Submission.


def _is_asked_late(cluster: LocalCluster) -> bool:
    """Whether slurmctld compares the ids of client and munge before it asks the plugin, and says little."""
    return cluster.status.release == "22.05"


@pytest.mark.every_slurm
@pytest.mark.parametrize(
    "command", [("srun", "id"), ("sbatch", "--wrap=id"), ("salloc", "id")], ids=lambda c: c[0]
)
@pytest.mark.parametrize("uid", ["0", "1", SLURM, MUNGE, NOBODY])
def test_system_users_inside_submit_nothing_and_are_told_what_to_do(
    cluster: LocalCluster, uid: str, command: tuple[str, ...]
) -> None:
    done = as_id(cluster, uid, *command)
    told = "Invalid user id" if _is_asked_late(cluster) and uid != NOBODY else REFUSED.format(uid=NOBODY)
    assert told in done.err
    assert done.status != 0
    assert done.out == ""


@pytest.mark.every_slurm
def test_users_of_system_groups_submit_nothing(cluster: LocalCluster, user: str) -> None:
    for gid in ("0", "42", MUNGE):
        done = as_id(cluster, user, "srun", "id", gid=gid)
        told = "Invalid group id" if _is_asked_late(cluster) else "primary group is a system group"
        assert told in done.err
        assert done.status != 0
    # users, which is some sites' group of all users.
    assert "gid=100(" in as_id(cluster, user, "srun", "-D/", "id", gid="100").ok()


@pytest.mark.every_slurm
@pytest.mark.parametrize("hostname", ["login", "controller"])
def test_root_outside_submits_jobs_of_its_own_and_of_users_and_of_no_system_user(
    cluster: LocalCluster, user: str, hostname: str
) -> None:
    assert "uid=0(root)" in cluster.on(hostname, "srun", "-D/", "id").ok()
    number = cluster.jail("id", "-u", user).ok().strip()
    held = ("sbatch", "--parsable", "--hold", "-D/", "-o/dev/null", "--wrap=true")
    job = cluster.on(hostname, *held, f"--uid={user}", f"--gid={user}").ok().strip()
    assert cluster.job(job)["UserId"] == f"{user}({number})"
    cluster.on(hostname, "scancel", job).ok()
    # It would be the user's with group 0.
    assert "--uid=USER --gid=GROUP" in cluster.on(hostname, *held, f"--uid={user}").err
    for uid in ("1", SLURM, MUNGE, NOBODY):
        done = cluster.on(hostname, *held, f"--uid={uid}", f"--gid={number}")
        assert done.status != 0, done
        assert REFUSED.format(uid=uid) in done.err
    become = ("setpriv", f"--reuid={SLURM}", f"--regid={SLURM}", "--clear-groups")
    assert REFUSED.format(uid=SLURM) in cluster.on(hostname, *become, *held).err


@pytest.mark.every_slurm
def test_a_job_is_changed_by_its_user_and_by_root_outside_alone(cluster: LocalCluster, user: str) -> None:
    job = submit(cluster, user, "true", "--hold", "-o", "/dev/null")
    try:
        change = ("scontrol", "update", f"JobId={job}")
        for uid in ("0", "1", SLURM, NOBODY):
            assert as_id(cluster, uid, *change, "Comment=theirs").status != 0
        # No longer the user of the job: who has it is asked for with the name of a job only.
        assert as_id(cluster, user, *change, "Comment=own").status == 0
        assert cluster.job(job)["Comment"] == "own"
        cluster.on("controller", *change, "Comment=admin").ok()
        assert cluster.job(job)["Comment"] == "admin"
    finally:
        cluster.jail("scancel", job, user=user).ok()


# Administration.

ADMINISTERING = (
    ("scontrol", "reconfigure"),
    ("scontrol", "update", "nodename=worker-1", "state=drain", "reason=mine"),
    ("scontrol", "create", "partition=mine", "nodes=ALL"),
    ("scontrol", "shutdown"),
    # Slurm 22.05 obeys who is root or SlurmUser.
    ("strigger", "--set", "--node", "--down", "--program=/usr/bin/true"),
)


@pytest.mark.every_slurm
@pytest.mark.parametrize("uid", ["0", SLURM])
def test_root_inside_administers_nothing(cluster: LocalCluster, uid: str) -> None:
    for command in ADMINISTERING:
        done = as_id(cluster, uid, *command)
        assert done.status != 0, command
        assert re.search("Invalid user id|Access/permission denied|disabled", done.err), done
    # By who may: what was refused would have been done.
    assert "mine" not in cluster.on("controller", "sinfo", "-h", "-o", "%R %E %T").ok()
    assert "/usr/bin/true" not in cluster.on("controller", "strigger", "--get").out


@pytest.mark.parametrize("uid", ["0", SLURM, NOBODY])
def test_root_inside_ends_no_users_job_and_adds_no_step_to_it(
    cluster: LocalCluster, user: str, uid: str
) -> None:
    job = submit(cluster, user, "sleep 60", "-o", "/dev/null")
    cluster.wait_until("it runs", lambda: cluster.job(job)["JobState"] == "RUNNING")
    for command in (
        ("scancel", job),
        ("scontrol", "requeue", job),
        ("srun", "--overlap", f"--jobid={job}", "id"),
    ):
        done = as_id(cluster, uid, *command)
        assert done.err, command
        assert "uid=" not in done.out
    assert cluster.job(job)["JobState"] == "RUNNING"
    cluster.jail("scancel", job, user=user).ok()
    cluster.wait_until("it is over", lambda: cluster.job(job)["JobState"] == "CANCELLED")


@pytest.mark.needs_munge
@pytest.mark.every_slurm
def test_a_controller_of_ones_own_does_not_configure_slurmd(cluster: LocalCluster, user: str) -> None:
    """As operator it does: the escape suite sees it succeed."""
    folder = cluster.root / "rogue"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)

    def run(script: str) -> None:
        cluster.on("worker-2", "timeout", "30", "jail-enter", "--", "bash", "-c", script)

    outcome = configure_slurmd(cluster, "worker-2", Place(folder, "/rogue"), "rogue-mark", run, NOBODY)
    assert outcome.kind == "held", outcome
    assert srun(cluster, user, "-w", "worker-2", "hostname").ok() == "worker-2\n"


@pytest.mark.needs_munge
@pytest.mark.parametrize("uid", ["root", "munge"])
def test_the_munged_of_the_jail_is_closed_to_its_own_uid_and_to_root(cluster: LocalCluster, uid: str) -> None:
    """Munge owns its user namespace: root inside becomes munge, and would have all rights over it."""
    limits = "--inh-caps=-all --bounding-set=-sys_ptrace,-sys_admin"
    script = """
        for p in /proc/[0-9]*; do case $(cat $p/comm) in munged-for-jail) break;; esac; done
        setpriv --reuid UID --regid UID --clear-groups LIMITS sh -c "
            test -d $p || echo it does not run
            ls $p/root/etc/munge; cat $p/environ; head -c1 $p/mem; nsenter --user --target ${p#/proc/} id"
    """
    done = cluster.on("worker-1", "sh", "-c", script.replace("UID", uid).replace("LIMITS", limits))
    assert done.out == ""
    assert len(re.findall("Permission denied|Operation not permitted", done.err)) == 4, done


# Users.


def test_users_work_as_ever(cluster: LocalCluster, user: str) -> None:
    assert srun(cluster, user, "-N2", "id", "-un").ok() == f"{user}\n{user}\n"
    script = f"id -un; srun -N2 id -un; scontrol show job $SLURM_JOB_ID | grep -c UserId={user}"
    sbatch(cluster, user, script, "-N2", "-o", "batch.out")
    assert (cluster.root / "home" / user / "batch.out").read_text().split() == [user, user, user, "1"]


def test_what_goes_wrong_in_the_window_is_told_to_slurmctld(cluster: LocalCluster, user: str) -> None:
    """slurmstepd is root to the node's munged there, or the node would hang in COMPLETING."""
    job = submit(cluster, user, "true", "-o", "/no/such/folder/x", "-w", "worker-1", "--no-requeue")
    cluster.wait_until("it is over", lambda: cluster.job(job)["JobState"] == "FAILED")
    ask = ("squeue", "-h", "--states=COMPLETING", f"--jobs={job}")
    cluster.wait_until("it completes", lambda: not cluster.on("controller", *ask).out)


@pytest.mark.every_slurm
def test_the_user_of_the_proof_is_made_once_and_not_changed(cluster: LocalCluster) -> None:
    """`up` made it: with a home, a shell and a uid of ordinary users."""
    fields = cluster.jail("getent", "passwd", PROOF_USER).ok().strip().split(":")
    assert int(fields[2]) >= 1000
    assert fields[5:] == [f"/home/{PROOF_USER}", "/bin/bash"]
    assert (cluster.root / "home" / PROOF_USER).stat().st_uid == int(fields[2])
    cluster.jail("usermod", "--shell", "/bin/sh", PROOF_USER).ok()
    try:
        prove(cluster.request.name, Events())
        assert cluster.jail("getent", "passwd", PROOF_USER).ok().strip().endswith(":/bin/sh")
    finally:
        cluster.jail("usermod", "--shell", "/bin/bash", PROOF_USER).ok()


# `up --jail-root operator`


@pytest.fixture(scope="module")
def operator() -> Iterator[LocalCluster]:
    """A cluster where root in the jail is an operator of Slurm."""
    with running_cluster("operator", jail_root="operator") as running:
        yield running


def test_as_operator_root_inside_submits_and_administers_and_system_users_do_not(
    operator: LocalCluster,
) -> None:
    assert "uid=0(root)" in operator.jail("srun", "id").ok()
    operator.jail("scontrol", "update", "nodename=worker-1", "comment=mine").ok()
    for uid in ("1", SLURM, MUNGE):
        assert REFUSED.format(uid=uid) in as_id(operator, uid, "srun", "-D/", "id").err
