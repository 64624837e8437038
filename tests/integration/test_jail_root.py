"""`up --jail-root nobody`: root in the jail, and whom of Slurm's own it becomes, is nobody to Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.integration.conftest import Done, LocalCluster, other_variants, running_cluster
from tests.integration.escape.ways.rogue import Place, configure_slurmd
from tests.integration.jobs import sbatch, srun, submit

pytestmark = pytest.mark.integration

OVERFLOW = "(65534)"


@pytest.fixture(scope="module")
def nobody(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A cluster with the switch, and a user in it; of the default variant, or of the parameter's."""
    with running_cluster("nobody", getattr(request, "param", None), jail_root="nobody") as running:
        running.jail("useradd", "--create-home", "--shell", "/bin/bash", "ada").ok()
        yield running


def as_uid(cluster: LocalCluster, uid: str, *command: str) -> Done:
    """What root inside says as somebody else."""
    become = ("setpriv", "--reuid", uid, "--regid", uid, "--clear-groups")
    return cluster.jail(*become, *command)


@pytest.mark.parametrize("hostname", ["login", "worker-1"])
@pytest.mark.parametrize(
    ("uid", "seen"), [("root", OVERFLOW), ("slurm", OVERFLOW), ("ada", "(1000)"), ("daemon", "(1)")]
)
def test_munge_vouches_for_users_alone(nobody: LocalCluster, hostname: str, uid: str, seen: str) -> None:
    become = f"setpriv --reuid {uid} --regid {uid} --clear-groups"
    script = f"{become} munge --no-input | {become} unmunge | grep ^UID:"
    assert nobody.on(hostname, "jail-enter", "--", "sh", "-c", script).ok().strip().endswith(seen)


def test_munge_on_the_node_vouches_for_root(nobody: LocalCluster) -> None:
    """slurmd's own, or it would be nobody, too."""
    done = nobody.on("worker-1", "sh", "-c", "munge --no-input | unmunge | grep ^UID:")
    assert done.ok().strip().endswith("(0)")


ADMINISTERING = (
    ("scontrol", "reconfigure"),
    ("scontrol", "update", "nodename=worker-1", "state=drain", "reason=mine"),
    ("scontrol", "create", "partition=mine", "nodes=ALL"),
    ("scontrol", "shutdown"),
)


@pytest.mark.parametrize("uid", ["root", "slurm"])
@pytest.mark.parametrize("command", ADMINISTERING, ids=lambda command: " ".join(command[:2]))
def test_root_inside_administers_nothing(nobody: LocalCluster, uid: str, command: tuple[str, ...]) -> None:
    done = as_uid(nobody, uid, *command)
    assert done.status != 0
    assert "Invalid user id" in done.err or "Access/permission denied" in done.err, done
    # By who may: what was refused would have been done.
    assert "mine" not in nobody.on("controller", "sinfo", "-h", "-o", "%R %E %T").ok()


@pytest.mark.parametrize("uid", ["root", "slurm"])
def test_root_inside_ends_no_users_job(nobody: LocalCluster, uid: str) -> None:
    job = submit(nobody, "ada", "sleep 60", "-o", "/dev/null")
    nobody.wait_until("it runs", lambda: nobody.job(job)["JobState"] == "RUNNING")
    for command in (
        ("scancel", job),
        ("scontrol", "requeue", job),
        ("srun", "--overlap", f"--jobid={job}", "id"),
    ):
        assert as_uid(nobody, uid, *command).err, command
    assert nobody.job(job)["JobState"] == "RUNNING"
    nobody.jail("scancel", job, user="ada").ok()
    nobody.wait_until("it is over", lambda: nobody.job(job)["JobState"] == "CANCELLED")


def test_a_step_that_root_inside_starts_is_nobodys(nobody: LocalCluster) -> None:
    done = nobody.jail("srun", "-w", "worker-1", "sh", "-c", "id -u; grep CapPrm /proc/self/status")
    if done.status == 0:
        assert done.out.split() == ["65534", "CapPrm:", "0000000000000000"]


def test_a_controller_of_ones_own_does_not_configure_slurmd(nobody: LocalCluster) -> None:
    """With the switch off, the escape suite sees it succeed."""
    check_rogue(nobody)


def check_rogue(nobody: LocalCluster) -> None:
    folder = nobody.root / "rogue"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)

    def run(script: str) -> None:
        nobody.on("worker-2", "timeout", "30", "jail-enter", "--", "bash", "-c", script)

    outcome = configure_slurmd(nobody, "worker-2", Place(folder, "/rogue"), "rogue-mark", run, "nobody")
    assert outcome.kind == "held", outcome
    assert srun(nobody, "ada", "-w", "worker-2", "hostname").ok() == "worker-2\n"


@pytest.mark.parametrize("uid", ["root", "munge"])
def test_the_munged_of_the_jail_is_closed_to_its_own_uid_and_to_root(nobody: LocalCluster, uid: str) -> None:
    """Root inside owns its user namespace, and would have all rights over a process that may be dumped."""
    limits = "--inh-caps=-all --bounding-set=-sys_ptrace,-sys_admin"
    script = """
        for p in /proc/[0-9]*; do case $(cat $p/comm) in munged-for-jail) break;; esac; done
        setpriv --reuid UID --regid UID --clear-groups LIMITS sh -c "
            test -d $p || echo it does not run
            ls $p/root/etc/munge; cat $p/environ; head -c1 $p/mem; nsenter --user --target ${p#/proc/} id"
    """
    done = nobody.on("worker-1", "sh", "-c", script.replace("UID", uid).replace("LIMITS", limits))
    assert done.out == ""
    assert len(re.findall("Permission denied|Operation not permitted", done.err)) == 4, done


def test_users_work_as_ever(nobody: LocalCluster) -> None:
    assert srun(nobody, "ada", "-N2", "id", "-un").ok() == "ada\nada\n"
    script = "id -un; srun -N2 id -un; scontrol show job $SLURM_JOB_ID | grep -c UserId=ada"
    sbatch(nobody, "ada", script, "-N2", "-o", "batch.out")
    assert (nobody.root / "home/ada/batch.out").read_text().split() == ["ada", "ada", "ada", "1"]


def test_a_user_ends_his_own_jobs(nobody: LocalCluster) -> None:
    job = submit(nobody, "ada", "sleep 60", "-o", "/dev/null")
    nobody.jail("scancel", job, user="ada").ok()
    nobody.wait_until("it is over", lambda: nobody.job(job)["JobState"] == "CANCELLED")


def test_a_terminal_an_array_and_an_mpi_step(nobody: LocalCluster) -> None:
    assert "ada" in srun(nobody, "ada", "--pty", "id", "-un", tty=True).ok()
    sbatch(nobody, "ada", "id -un", "--array=1-2", "-o", "element.%a")
    assert (nobody.root / "home/ada/element.2").read_text() == "ada\n"
    out = srun(nobody, "ada", "-N2", "--mpi=pmi2", "sh", "-c", "echo $PMI_RANK").ok()
    assert sorted(out.split()) == ["0", "1"]


def test_what_goes_wrong_in_the_window_is_told_to_slurmctld(nobody: LocalCluster) -> None:
    """slurmstepd is root to the node's munged there, or the node would hang in COMPLETING."""
    job = submit(nobody, "ada", "true", "-o", "/no/such/folder/x", "-w", "worker-1", "--no-requeue")
    nobody.wait_until("it is over", lambda: nobody.job(job)["JobState"] == "FAILED")
    nobody.wait_until("no job", lambda: not nobody.on("controller", "squeue", "-h").ok())


@pytest.mark.parametrize("nobody", other_variants(), indirect=True, scope="module")
def test_so_it_is_with_other_releases_of_slurm(nobody: LocalCluster) -> None:
    """What slurmctld and slurmd decide; the rest is munge's and the kernel's."""
    for uid in ("root", "slurm"):
        for command in ADMINISTERING:
            test_root_inside_administers_nothing(nobody, uid, command)
        # The escape suite sees Slurm 22.05 obey, with the switch off.
        trigger = ("strigger", "--set", "--node", "--down", "--program=/usr/bin/true")
        assert as_uid(nobody, uid, *trigger).status != 0
        assert "/usr/bin/true" not in nobody.on("controller", "strigger", "--get").out
    check_rogue(nobody)
