"""What is wrong with a node, its plan or its volume: no program runs outside the jail, one line names the
cause where the user and the administrator look, and the node is drained for its own faults alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from cellblock.cluster.api import podman_environment
from cellblock.cluster.containers import container_name
from tests.integration.conftest import LocalCluster
from tests.integration.node_mounts import on_node
from tests.integration.test_cluster_lifecycle import again

pytestmark = pytest.mark.integration

WORKER = "worker-1"
HOLDER = "/run/cellblock/jail"

Fault = Callable[[LocalCluster], AbstractContextManager[None]]


def plan_file(cluster: LocalCluster) -> Path:
    return cluster.root.parent.parent / "config" / "worker" / "jail.fstab"


def container_pid(cluster: LocalCluster, worker: str = WORKER) -> str:
    """The first process of the worker's container, as this machine numbers it."""
    command = ["podman", "inspect", "--format={{.State.Pid}}", container_name(cluster.request.name, worker)]
    environment = {**os.environ, **podman_environment()}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()


# --- faults ---------------------------------------------------------------------------------------------


@contextmanager
def mounted(cluster: LocalCluster, target: str, options: str = "") -> Iterator[Path]:
    """An empty tmpfs over `target` in the worker, outside the jail; yields it as this machine sees it."""
    pid = container_pid(cluster)
    on_node(pid, "mount", target, options)
    try:
        yield Path("/proc", pid, "root", target.lstrip("/"))
    finally:
        on_node(pid, "umount", target)


def extra_line(line: str) -> Fault:
    """A line more in the workers' plan, its last."""

    @contextmanager
    def fault(cluster: LocalCluster) -> Iterator[None]:
        plan = plan_file(cluster)
        good = plan.read_text()
        plan.write_text(good + line + "\n")
        try:
            yield
        finally:
            plan.write_text(good)

    return fault


@contextmanager
def no_plan(cluster: LocalCluster) -> Iterator[None]:
    plan = plan_file(cluster)
    away = plan.rename(plan.with_suffix(".away"))
    try:
        yield
    finally:
        away.rename(plan)


@contextmanager
def plan_that_others_may_write(cluster: LocalCluster) -> Iterator[None]:
    plan_file(cluster).chmod(0o666)
    try:
        yield
    finally:
        plan_file(cluster).chmod(0o644)


def volume_with(*folders: str) -> Fault:
    """Another volume on the worker: nothing but these folders."""

    @contextmanager
    def fault(cluster: LocalCluster) -> Iterator[None]:
        with mounted(cluster, "/mnt/jail") as volume:
            for folder in folders:
                (volume / folder).mkdir(parents=True)
            yield

    return fault


@contextmanager
def stale_volume(cluster: LocalCluster) -> Iterator[None]:
    """A real file system of the kernel that answers ESTALE to everything."""
    pid = container_pid(cluster)
    program = [sys.executable, str(Path(__file__).with_name("stale_volume.py")), pid, "/mnt/jail"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == "mounted\n"
            yield
        finally:
            server.kill()
            on_node(pid, "umount", "/mnt/jail")


def small_volume(options: str) -> Fault:
    """A volume with the targets of the plan, but not /srv/new, on which nothing more can be made."""

    @contextmanager
    def fault(cluster: LocalCluster) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(extra_line("/etc/hosts /srv/new none bind,x-create=file")(cluster))
            volume = stack.enter_context(mounted(cluster, "/mnt/jail"))
            root = volume / "root"
            folders = ("usr", "etc/slurm", "proc", "sys", "dev/pts", "dev/shm", "dev/mqueue", "run/munge")
            for folder in (*folders, "tmp", "srv", "var/spool/slurmd"):
                (root / folder).mkdir(parents=True)
            for file in ("etc/hosts", "etc/resolv.conf"):
                (root / file).touch()
            full = f"nr_inodes={len(list(volume.rglob('*'))) + 1}"
            on_node(container_pid(cluster), "remount", "/mnt/jail", options.replace("full", full))
            yield

    return fault


def holder_on(options: str) -> Fault:
    """The directory in which the node keeps what belongs to jobs, on another file system."""

    @contextmanager
    def fault(cluster: LocalCluster) -> Iterator[None]:
        with mounted(cluster, "/run/cellblock", options):
            yield

    return fault


@contextmanager
def root_that_others_may_write(cluster: LocalCluster) -> Iterator[None]:
    """Root in the jail can do that: chmod 777 /."""
    with ExitStack() as stack:
        # Not the shared one: the login node would refuse it, too.
        stack.enter_context(volume_with("root/usr", "root/etc")(cluster))
        Path("/proc", container_pid(cluster), "root/mnt/jail/root").chmod(0o777)
        yield


# --- what comes of them ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Attempt:
    """A job that was tried on the worker."""

    status: int
    causes: list[str]
    """Lines of the plugin in the job's own error output."""
    logged: list[str]
    """Lines of the plugin in slurmd's log."""
    ran: bool
    drained: bool
    reason: str


def node(cluster: LocalCluster) -> tuple[bool, str]:
    """Whether the worker is drained, and why."""
    text = cluster.on("controller", "scontrol", "show", "node", WORKER).ok()
    state, reason = re.search(r"State=(\S+)", text), re.search(r"Reason=(.*) \[", text)
    assert state is not None
    return "DRAIN" in state[1], reason[1] if reason else ""


def resume(cluster: LocalCluster) -> None:
    if node(cluster)[0]:
        cluster.on("controller", "scontrol", "update", f"nodename={WORKER}", "state=resume").ok()
    cluster.wait_until("the node is in service", lambda: not node(cluster)[0])


def causes(text: str) -> list[str]:
    return [line for line in text.splitlines() if "spank_jail: " in line]


def attempt(
    cluster: LocalCluster, user: str, *, batch: bool = False, options: tuple[str, ...] = ()
) -> Attempt:
    """Try a job that leaves a mark if it runs at all, wherever it runs."""
    folder = cluster.root / "home" / user
    for name in ("ran", "error"):
        (folder / name).unlink(missing_ok=True)
    cluster.on(WORKER, "sh", "-c", "> /var/log/slurm/slurmd.log").ok()
    mark = f"touch /home/{user}/ran /mnt/jail/root/home/{user}/ran /tmp/ran-outside"
    where = ("-w", WORKER, "-D", f"/home/{user}")
    if batch:
        argv = ("sbatch", "--wait", "--no-requeue", "-o", "/dev/null", "-e", f"/home/{user}/error", *where)
        done = cluster.jail(*argv, *options, "--wrap", mark, user=user)
        error = (folder / "error").read_text() if (folder / "error").exists() else ""
    else:
        done = cluster.jail("srun", *where, *options, "sh", "-c", mark, user=user)
        error = done.err
    log = cluster.on(WORKER, "cat", "/var/log/slurm/slurmd.log").ok()
    outside = cluster.on(WORKER, "ls", "/tmp/ran-outside").status == 0
    drained, reason = node(cluster)
    ran = (folder / "ran").exists() or outside
    return Attempt(done.status, causes(error), causes(log), ran, drained, reason)


@pytest.fixture(autouse=True)
def serves_again(cluster: LocalCluster, user: str) -> Iterator[None]:
    """After each test, with the fault repaired, the worker takes jobs, at most after state=resume."""
    yield
    resume(cluster)
    cluster.wait_until("no job", lambda: not cluster.on("controller", "squeue", "-h").ok())
    assert cluster.jail("srun", "-w", WORKER, "cat", "/etc/cellblock/jail-release", user=user).ok()
    cluster.wait_until("its jobs left nothing", lambda: not cluster.on(WORKER, "ls", HOLDER).ok())


# Of the node, or of what its administrator gave it: no job can run there.
NODE_FAULTS: dict[str, tuple[Fault, str]] = {
    "a line of the plan that makes no sense": (extra_line("gibberish"), r"jail\.fstab:LAST: .*"),
    "an unknown option in the plan": (
        extra_line("proc /proc proc nonsense"),
        r"jail\.fstab:LAST: .*nonsense",
    ),
    "a source that is missing": (
        extra_line("/does/not/exist /srv none bind"),
        r'jail\.fstab:LAST: /srv: open_tree: .*ENOENT.*"/does/not/exist" is missing',
    ),
    "no plan": (no_plan, r"/etc/cellblock/jail\.fstab: realpath: .*ENOENT.* the mount plan"),
    "a plan that others may write": (plan_that_others_may_write, r"mount plan .*mode 0666; chmod go-w"),
    "no jail": (volume_with(), r"/mnt/jail/root: realpath: .*ENOENT.* the jail root .* volume mounted"),
    "a jail half assembled": (
        volume_with(".cellblock/staging.1/root/usr"),
        r"/mnt/jail/root: realpath: .*ENOENT.* the jail root",
    ),
    "an empty jail": (volume_with("root"), r'/mnt/jail/root: .*no directory "usr".*assembled'),
    "a stale volume": (stale_volume, r"/mnt/jail/root: realpath: .*ESTALE.* mount its volume again"),
    "no place for the mounts of jobs": (holder_on("ro"), r"mkdir: .*EROFS.*/run/cellblock/jail"),
    "a full place for the mounts of jobs": (
        holder_on("nr_inodes=1"),
        r"mkdir: .*ENOSPC.*/run/cellblock/jail",
    ),
}

# In the tree that users write.
JAIL_FAULTS: dict[str, tuple[Fault, str]] = {
    "a full volume": (
        small_volume("full"),
        r"jail\.fstab:LAST: /srv/new: mknodat: .*ENOSPC.* not full",
    ),
    "a read-only volume": (small_volume("ro"), r"jail\.fstab:LAST: /srv/new: mknodat: .*EROFS.* writable"),
    "a target that is missing": (
        extra_line("/etc/hosts /srv/missing none bind"),
        r"jail\.fstab:LAST: /srv/missing: openat2: .*ENOENT.* create it there",
    ),
    "a target of another kind": (
        extra_line("/etc/hosts /srv none bind"),
        r"jail\.fstab:LAST: /srv: move_mount: .* both be files",
    ),
    "a root that others may write": (root_that_others_may_write, r"jail root .*mode 0777; chmod go-w"),
}


def check(cluster: LocalCluster, found: Attempt, pattern: str) -> None:
    """It failed, did not run, and one line says why."""
    last = len(plan_file(cluster).read_text().splitlines()) if plan_file(cluster).exists() else 0
    expected = pattern.replace("LAST", str(last))
    assert not found.ran
    assert found.status != 0
    assert len(found.causes) == 1, found
    assert re.search(expected, found.causes[0]), found
    assert any(re.search(expected, line) for line in found.logged), found


@pytest.mark.parametrize("name", NODE_FAULTS)
def test_a_fault_of_the_node_drains_it_with_the_cause_as_reason(
    cluster: LocalCluster, user: str, name: str
) -> None:
    fault, pattern = NODE_FAULTS[name]
    with fault(cluster):
        found = attempt(cluster, user)
        check(cluster, found, pattern)
    assert found.drained
    assert found.reason in found.causes[0]


@pytest.mark.parametrize("name", JAIL_FAULTS)
def test_what_users_can_do_to_the_jail_drains_no_node(cluster: LocalCluster, user: str, name: str) -> None:
    fault, pattern = JAIL_FAULTS[name]
    with fault(cluster):
        found = attempt(cluster, user)
        check(cluster, found, pattern)
    assert not found.drained


def test_a_batch_job_finds_the_cause_in_its_error_file(cluster: LocalCluster, user: str) -> None:
    fault, pattern = NODE_FAULTS["a source that is missing"]
    with fault(cluster):
        found = attempt(cluster, user, batch=True)
        check(cluster, found, pattern)
    assert found.drained
    assert found.reason in found.causes[0]


def test_a_batch_job_fails_without_draining_for_a_fault_in_the_jail(cluster: LocalCluster, user: str) -> None:
    fault, pattern = JAIL_FAULTS["a target of another kind"]
    with fault(cluster):
        found = attempt(cluster, user, batch=True)
        check(cluster, found, pattern)
    assert not found.drained


def test_a_batch_job_on_a_node_without_the_jail_drains_it_and_does_not_run(
    cluster: LocalCluster, user: str
) -> None:
    """Its error file is on the volume that is missing: the log alone has the cause."""
    fault, pattern = NODE_FAULTS["no jail"]
    with fault(cluster):
        found = attempt(cluster, user, batch=True)
    assert not found.ran
    assert found.status != 0
    assert found.drained
    assert re.search(pattern, found.reason)


# --- mistakes of a user ---------------------------------------------------------------------------------


@contextmanager
def full_home(cluster: LocalCluster, user: str) -> Iterator[None]:
    owner = (cluster.root / "home" / user).stat()
    options = f"nr_inodes=1,mode=755,uid={owner.st_uid},gid={owner.st_gid}"
    with mounted(cluster, f"/mnt/jail/root/home/{user}", options):
        yield


def test_an_output_path_that_does_not_exist_drains_no_node(cluster: LocalCluster, user: str) -> None:
    found = attempt(cluster, user, batch=True, options=("-o", "/home/nobody/there/x"))
    assert (found.ran, found.status != 0, found.drained) == (False, True, False), found


def test_a_full_home_drains_no_node(cluster: LocalCluster, user: str) -> None:
    with full_home(cluster, user):
        found = attempt(cluster, user, batch=True)
    assert (found.ran, found.status != 0, found.drained) == (False, True, False), found


def test_a_directory_as_input_drains_no_node(cluster: LocalCluster, user: str) -> None:
    found = attempt(cluster, user, batch=True, options=("-i", f"/home/{user}"))
    assert (found.ran, found.status != 0, found.drained) == (False, True, False), found
    assert len(found.causes) == 1
    assert "standard input of the job is a directory" in found.causes[0]


def test_an_environment_cannot_misname_the_node(cluster: LocalCluster, user: str) -> None:
    command = ("srun", "-w", WORKER, "sh", "-c", "echo $SLURMD_NODENAME")
    assert cluster.jail("env", "SLURMD_NODENAME=../x", *command, user=user).ok() == f"{WORKER}\n"


# --- while a job runs -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """An allocation of the worker, in which a test runs steps."""

    cluster: LocalCluster
    user: str
    id: str

    def step(self, script: str, *options: str) -> str:
        """Run a step; its output."""
        where = (f"--jobid={self.id}", "--overlap", "--mpi=none", "-n1", *options)
        return self.cluster.jail("srun", *where, "sh", "-c", script, user=self.user).ok()

    def fails(self, script: str) -> str:
        """Run a step that must not start; its error output."""
        where = (f"--jobid={self.id}", "--overlap", "--mpi=none", "-n1")
        done = self.cluster.jail("srun", *where, "sh", "-c", script, user=self.user)
        assert done.status != 0
        assert not done.out
        return done.err


@pytest.fixture
def job(cluster: LocalCluster, user: str) -> Iterator[Job]:
    done = cluster.jail("salloc", "--no-shell", "-w", WORKER, "-n1", user=user)
    done.ok()
    found = Job(cluster, user, done.err.rpartition("Granted job allocation ")[2].split()[0])
    yield found
    cluster.jail("scancel", found.id, user=user).ok()


def holder(job: Job, script: str) -> str:
    """A shell in the job's directory of the holder, on the worker."""
    return job.cluster.on(WORKER, "sh", "-c", f"cd {HOLDER}/{job.id} && {script}").ok()


def test_a_source_that_goes_while_a_job_runs_fails_its_next_step_and_no_other(
    cluster: LocalCluster, job: Job
) -> None:
    cluster.on(WORKER, "sh", "-c", "mkdir /run/tools; echo 1 > /run/tools/version").ok()
    with extra_line("/run/tools /srv none bind,ro")(cluster):
        assert job.step("cat /srv/version") == "1\n"
        cluster.on(WORKER, "mv", "/run/tools", "/run/gone").ok()
        found = causes(job.fails("echo it ran"))
        assert len(found) == 1
        assert '/srv: open_tree: No such file or directory (ENOENT): the source "/run/tools"' in found[0]
        cluster.on(WORKER, "mv", "/run/gone", "/run/tools").ok()
        assert job.step("cat /srv/version") == "1\n"
    cluster.on(WORKER, "rm", "-r", "/run/tools").ok()


def test_a_source_that_may_fail_is_left_out(cluster: LocalCluster, job: Job) -> None:
    with extra_line("/does/not/exist /srv none bind,nofail")(cluster):
        assert job.step("echo it ran") == "it ran\n"


def test_a_changed_plan_counts_from_the_next_step_on(cluster: LocalCluster, job: Job) -> None:
    # ls needs the target, which the volume has; the node's hosts file is what the plan puts there.
    assert job.step("ls /srv; touch /tmp/kept") == ""
    with extra_line("/etc/hosts /srv/hosts none bind,x-create=file")(cluster):
        assert WORKER in job.step("cat /srv/hosts; ls /tmp/kept")
    assert job.step("cat /srv/hosts; ls /tmp/kept") == "/tmp/kept\n"
    (cluster.root / "srv" / "hosts").unlink()


@pytest.mark.parametrize(
    "damage",
    [
        "truncate -s 10 record",
        ": > record",
        "head -c 4096 /dev/urandom > record",
        "printf '\\377\\377\\377\\377\\377\\377\\377\\377' | dd of=record bs=1 seek=160 conv=notrunc",
        "rm record",
        "umount -l tasks",
        "umount -l home window",
        "rm -f record.new; mkdir record.new",
        "umount -l spool",
        "umount -l '!tmp'",
    ],
)
def test_a_step_survives_damage_to_what_the_node_keeps_of_its_job(job: Job, damage: str) -> None:
    job.step("true")
    pid = container_pid(job.cluster)
    for line in damage.split("; "):
        if line.startswith("umount"):
            for place in line.split()[2:]:
                path = f"{HOLDER}/{job.id}/{place.strip(chr(39))}"
                # Not there: such a plan keeps no namespaces.
                if not holder(job, f"grep -F {path!r} /proc/1/mountinfo || true"):
                    continue
                on_node(pid, "umount", path)
        else:
            holder(job, f"({line}) 2>/dev/null || true")
    for _ in range(2):
        assert job.step("test -e /etc/cellblock/jail-release && echo works") == "works\n"


def test_steps_that_start_at_once_as_the_first_of_a_job_share_its_tmp(
    cluster: LocalCluster, user: str
) -> None:
    script = (
        "for i in 1 2 3 4 5 6; do srun --overlap --mpi=none -n1 touch /tmp/$i & done; wait; cd /tmp; ls [1-6]"
    )
    done = cluster.jail("salloc", "-w", WORKER, "-n1", "srun", "--overlap", "sh", "-c", script, user=user)
    assert done.ok().split() == ["1", "2", "3", "4", "5", "6"]


# --- what a node keeps of jobs --------------------------------------------------------------------------


def make_leftover(cluster: LocalCluster, job: str) -> None:
    """What a node that lost its slurmd keeps of a job: a directory with a mount."""
    cluster.on(WORKER, "mkdir", "-p", f"{HOLDER}/{job}/!tmp").ok()
    on_node(container_pid(cluster), "mount", f"{HOLDER}/{job}/!tmp")


def kept_jobs(cluster: LocalCluster) -> list[str]:
    return cluster.on(WORKER, "ls", HOLDER).ok().split()


def test_leftovers_go_when_another_job_starts_and_a_live_jobs_own_stay(
    cluster: LocalCluster, user: str, job: Job
) -> None:
    job.step("touch /tmp/kept")
    make_leftover(cluster, "4000000")
    cluster.jail("srun", "-w", WORKER, "true", user=user).ok()
    cluster.wait_until("only the live job is kept", lambda: kept_jobs(cluster) == [job.id])
    assert job.step("ls /tmp/kept") == "/tmp/kept\n"


def test_a_job_is_kept_while_slurmctld_knows_it_even_if_all_its_slurmstepds_were_killed(
    cluster: LocalCluster, user: str, job: Job
) -> None:
    job.step("touch /tmp/kept")
    kill = f"""for p in /proc/[0-9]*; do case $(tr '\\0' ' ' < $p/cmdline) in
        "slurmstepd: [{job.id}."*) kill -KILL ${{p#/proc/}} && echo killed;; esac; done 2>/dev/null; true"""
    assert "killed" in cluster.on(WORKER, "sh", "-c", kill).ok()
    cluster.jail("srun", "-w", WORKER, "true", user=user).ok()
    assert cluster.job(job.id)["JobState"] == "RUNNING"
    assert job.step("ls /tmp/kept") == "/tmp/kept\n"


@pytest.fixture
def without_init(cluster: LocalCluster) -> Iterator[None]:
    """The worker's first process is stopped, so that the container outlives its slurmd."""
    pid = int(container_pid(cluster))
    os.kill(pid, signal.SIGSTOP)
    yield
    os.kill(pid, signal.SIGCONT)
    cluster.wait_until("the container ended", lambda: not Path("/proc", str(pid)).exists())
    again(cluster)


def restart_slurmd(cluster: LocalCluster) -> None:
    """End slurmd with SIGKILL and start another, as a service manager does."""
    # By its command line: a slurmd that was reconfigured has executed itself, and is called otherwise.
    look = """set -- $(tr '\\0' ' ' < $p/cmdline); [ "${1##*/}" = slurmd ] && echo $p"""
    find = f"for p in /proc/[0-9]*; do {look}; done 2>/dev/null; true"
    process = cluster.on(WORKER, "sh", "-c", find).ok().split()[0]
    words = cluster.on(WORKER, "cat", f"{process}/cmdline").ok().rstrip("\0").split("\0")
    cluster.on(WORKER, "kill", "-KILL", process.removeprefix("/proc/")).ok()
    name = container_name(cluster.request.name, WORKER)
    environment = {**os.environ, **podman_environment()}
    subprocess.run(["podman", "exec", "-d", name, *words], check=True, capture_output=True, env=environment)


@pytest.mark.usefixtures("without_init")
def test_a_job_lives_on_when_slurmd_is_killed_and_started_again(
    cluster: LocalCluster, user: str, job: Job
) -> None:
    job.step("touch /tmp/kept")
    make_leftover(cluster, "4000000")
    restart_slurmd(cluster)
    cluster.wait_until(
        "slurmd serves", lambda: cluster.jail("srun", "-w", WORKER, "true", user=user).status == 0
    )
    assert job.step("ls /tmp/kept") == "/tmp/kept\n"
    cluster.jail("scancel", job.id, user=user).ok()
    cluster.wait_until("nothing is kept", lambda: not kept_jobs(cluster))
