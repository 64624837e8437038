# SPDX-License-Identifier: Apache-2.0
"""One real cluster for all integration tests that need one: built, assembled and started by `up`'s code."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.cluster import ClusterStatus, stop
from cellblock.cluster.configuration.config import SlurmFeatures
from cellblock.cluster.definition.cluster_file import default_file
from cellblock.cluster.engine.api import podman_environment
from cellblock.cluster.engine.containers import container_name
from cellblock.cluster.proof_user import MAY_SUBMIT
from cellblock.cluster.up import UpResult, bring_up
from cellblock.cluster.up_request import UpRequest, volume_path
from cellblock.events import Events
from cellblock.paths import PROJECT
from cellblock.variants import choose_variant, load_variants
from tests.integration.cluster.container_shell import ContainerShells, NotOver, run_by_podman
from tests.integration.condition import condition_of
from tests.integration.registry import RunningRegistry, running_registry
from tests.integration.registry_proxy import Proxy, running_proxy
from tests.integration.state_folder import state_folder
from tests.ports import free_port

# The Slurm releases of Debian: 22.05, 24.11, 26.05.
EVERY_SLURM = ("debian12", "debian13", "debian14")
# Seconds for one command in the cluster, or for a condition. Jobs here take one or two; on a loaded machine
# Slurm's own timers add up: its look at limits (30), a message sent again (60).
_TIMEOUT_S = 180
# Seconds for apt-get, which fetches and unpacks a hundred packages.
_INSTALL_S = 600
# The comment of jobs that outlive a failed test: those of a fixture of the session.
KEPT = "kept"
_PROCESSES = """\
for (glob "/proc/[0-9]*") {
    my $uid = (stat)[4];
    open my $file, "<", "$_/cmdline" or next;
    my $line = do { local $/; <$file> } // "";
    $line =~ tr/\\0/ /;
    print "$uid $line\\n" if defined $uid;
}
"""
_MPI_PROGRAM = Path(__file__).with_name("mpi_sum.c")


def podman(*arguments: str) -> str:
    """What podman, as clusters use it, prints on both outputs: `podman logs` keeps the two apart."""
    done = subprocess.run(
        ["podman", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        env={**os.environ, **podman_environment()},
    )
    return done.stdout


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    status: int
    out: str
    err: str

    def ok(self) -> str:
        """Its output; an assertion that it ended well."""
        assert self.status == 0, f"status {self.status}\n{self.out}\n{self.err}"
        return self.out


@dataclass(frozen=True)
class LocalCluster:
    """A running cluster and ways to run things in it."""

    request: UpRequest
    result: UpResult
    shells: ContainerShells = field(repr=False, compare=False)
    # The last command and its answer: what a condition that does not come true has seen.
    last: list[str] = field(default_factory=list, repr=False, compare=False)

    @property
    def status(self) -> ClusterStatus:
        """As `up` returned it."""
        return self.result.status

    @property
    def root(self) -> Path:
        """The jail's tree on this machine."""
        return volume_path(self.request.name) / "root"

    def on(
        self, hostname: str, *command: str, tty: bool = False, stdin: str = "", timeout_s: int = _TIMEOUT_S
    ) -> Done:
        """Run `command` as root in a container, outside the jail."""
        container = container_name(self.request.name, hostname)
        try:
            if tty:
                answer = run_by_podman(
                    container, command, stdin, timeout_s, self.shells.environment, tty=True
                )
            else:
                answer = self.shells.run(container, command, stdin, timeout_s)
        except NotOver as error:
            what = f"{hostname}: {shlex.join(command)} is not over after {timeout_s} s"
            raise AssertionError(f"{what}\n{error.output}\n{condition_of(self.request.name)}") from None
        status, out, err = answer
        self.last[:] = [f"--- {hostname}: {shlex.join(command)}: status {status}\n{out}{err}"]
        return Done(status, out, err)

    def jail(
        self,
        *command: str,
        user: str = "root",
        tty: bool = False,
        stdin: str = "",
        timeout_s: int = _TIMEOUT_S,
    ) -> Done:
        """Run `command` in the jail on the login node, as a user of the jail."""
        argv = ("jail-enter", "--user", user, "--", *command)
        return self.on("login", *argv, tty=tty, stdin=stdin, timeout_s=timeout_s)

    def client(
        self, *command: str, user: str, tty: bool = False, stdin: str = "", timeout_s: int = _TIMEOUT_S
    ) -> Done:
        """Run a client command of Slurm on the login node: in the jail, but root's outside.

        Root in the jail is nobody to Slurm and submits nothing; an administrator's jobs run as root inside.
        """
        if user == "root":
            return self.on("login", *command, tty=tty, stdin=stdin, timeout_s=timeout_s)
        return self.jail(*command, user=user, tty=tty, stdin=stdin, timeout_s=timeout_s)

    def add_user(self, name: str, *options: str) -> None:
        """Make a user of the jail, unless there is one, and wait until slurmctld takes their jobs."""
        make = 'id "$0" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$@" "$0"'
        self.jail("sh", "-c", make, name, *options).ok()
        ask = ("getent", "passwd", name)
        self.wait_until(f"slurmctld knows {name}", lambda: self.on("controller", *ask).status == 0)
        if any(container.role == "accounting" for container in self.status.containers):
            association = ("sh", "-c", MAY_SUBMIT, name)
            self.wait_until(
                f"{name} has an association", lambda: self.on("controller", *association).status == 0
            )

    def install(self, *packages: str) -> None:
        """Install packages in the jail, as its administrator would, but without fsync(2) for each file."""
        options = ["-qq", "-o", "Dpkg::Use-Pty=0", "-o", "Dpkg::Options::=--force-unsafe-io"]
        if not self.result.build.variant.distribution.check_valid_until:
            options += ["-o", "Acquire::Check-Valid-Until=false"]
        self.jail("apt-get", *options, "update", timeout_s=_INSTALL_S).ok()
        install = ("apt-get", *options, "-y", "--no-install-recommends", "install", *packages)
        self.jail("env", "DEBIAN_FRONTEND=noninteractive", *install, timeout_s=_INSTALL_S).ok()

    def processes(self, hostname: str) -> list[tuple[str, str]]:
        """(uid, command line) of the processes in a container; its image needs no ps for that.

        By one process: a shell starts two for each that it looks at, and conditions look five times a second.
        """
        lines = self.on(hostname, "perl", "-e", _PROCESSES).ok().splitlines()
        pairs = [line.partition(" ") for line in lines]
        return [(uid, command.strip()) for uid, _, command in pairs]

    def job(self, job_id: str) -> dict[str, str]:
        """What scontrol shows of a job."""
        text = self.on("controller", "scontrol", "show", "job", job_id, "--oneliner").ok()
        return dict(part.split("=", 1) for part in text.split() if "=" in part)

    def reconfigure(self) -> None:
        """Have slurmctld read its configuration anew, and the workers fetch it.

        Not while a job completes: Slurm 22.05 then waits for its end for ever.
        """
        self.wait_until_none_completes()
        command = ("controller", "scontrol", "reconfigure")
        done = self.on(*command)
        # slurmctld 24.11 waits for the end of each connection, however idle, and answers nobody till then.
        if "timed out" in done.out + done.err:
            ping = ("scontrol", "ping")
            self.wait_until("slurmctld answers", lambda: " is UP" in self.on("controller", *ping).out)
            done = self.on(*command)
        done.ok()

    def wait_until_none_completes(self) -> None:
        """Wait until no job is in the state COMPLETING."""
        squeue = ("squeue", "--noheader", "--states=COMPLETING")
        self.wait_until("no job completes", lambda: not self.on("controller", *squeue).ok())

    def numbers_of(self, hostname: str, program: str) -> list[str]:
        """Numbers, in the container, of the processes that run a program.

        By their command line: a slurmd that was reconfigured has executed itself, and is called otherwise.
        """
        look = f"""set -- $(tr '\\0' ' ' < $p/cmdline); n=${{1##*/}}; [ "${{n%:}}" = {program} ]"""
        script = f"for p in /proc/[0-9]*; do {look} && echo ${{p#/proc/}}; done 2>/dev/null; true"
        return self.on(hostname, "sh", "-c", script).ok().split()

    def restart_slurmd(self, hostname: str) -> None:
        """End slurmd with SIGKILL; node-supervise starts another, which asks for its configuration again."""
        before = self.numbers_of(hostname, "slurmd")
        assert before, f"{hostname}: no slurmd"
        self.on(hostname, "kill", "-KILL", before[0]).ok()
        self.wait_until(
            "another slurmd", lambda: self.numbers_of(hostname, "slurmd")[:1] not in ([], before[:1])
        )

    def wait_until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until `condition()` holds."""
        deadline = time.monotonic() + _TIMEOUT_S
        while not condition():
            if time.monotonic() >= deadline:
                seen = "".join(self.last) or "no command ran"
                raise AssertionError(
                    f"not after {_TIMEOUT_S} s: {what}; the last command of the test and its answer:\n"
                    f"{seen}\n{condition_of(self.request.name)}"
                )
            time.sleep(0.2)

    def cancel_jobs(self) -> None:
        """Cancel all jobs but those whose comment is KEPT."""
        lines = self.on("controller", "squeue", "--all", "--noheader", "--format=%A %k").out.splitlines()
        left = [line.split()[0] for line in lines if line.split()[1:] != [KEPT]]
        if left:
            self.on("controller", "scancel", *left)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One more try for a test that failed in a real cluster.

    They share two cores with slurmctld, two slurmds and their steps, and wait for Slurm's own timers. Reruns
    are shown in the summary; what fails twice fails. Those of the escape suite, of which a single success of
    an attack counts, are not tried again.
    """
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and here / "escape" not in item.path.parents:
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=3))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed try leaves no job: one that holds a worker, or runs later, would fail the next try, too.

    When `on` gives up a command, that ends podman's client alone: an salloc goes on in the container.
    """
    report = yield
    running = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and call.when == "call" and isinstance(running, LocalCluster):
        with suppress(AssertionError):
            running.cancel_jobs()
    return report


def default_variant() -> str:
    """CELLBLOCK_TEST_VARIANT, else what `up` takes on this host."""
    asked = os.environ.get("CELLBLOCK_TEST_VARIANT")
    return choose_variant(load_variants(PROJECT / "images" / "variants.yaml"), asked).name


def other_variants() -> list[str]:
    """The variants besides the default one that have a Slurm release of their own.

    None when CELLBLOCK_TEST_VARIANT names the one to test.
    """
    asked = os.environ.get("CELLBLOCK_TEST_VARIANT")
    return [] if asked else [name for name in EVERY_SLURM if name != default_variant()]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One cluster a variant: pytest then runs all tests of a variant together.

    Tests marked every_slurm run on each variant, others on the host's default one. CELLBLOCK_TEST_VARIANT
    names the one variant to run both on.
    """
    if "cluster" not in metafunc.fixturenames:
        return
    every = metafunc.definition.get_closest_marker("every_slurm") is not None
    # The default first: the tests of the others' images come after most failures have shown.
    variants = [default_variant(), *(other_variants() if every else [])]
    metafunc.parametrize("cluster", variants, indirect=True, scope="session")


@contextmanager
def running_cluster(
    prefix: str, variant: str | None = None, jail_root: str = "nobody", text: str | None = None
) -> Iterator[LocalCluster]:
    """A cluster of two workers, or what the cluster file `text` says.

    Its images are kept, everything else goes at the end.
    """
    if os.geteuid() != 0:
        pytest.skip("a cluster needs root")
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    with state_folder() as folder:
        asked = UpRequest(
            name=f"{prefix}{os.getpid()}",
            variant=variant or default_variant(),
            ssh_port=free_port(),
            jail_root=jail_root,
            file=write_cluster_file(folder, text or default_file().read_text(encoding="utf-8")),
        )
        events = Events()
        shells = ContainerShells({**os.environ, **podman_environment()})
        try:
            yield LocalCluster(asked, bring_up(asked, events), shells)
        finally:
            shells.close()
            stop(asked.name, events)


# Or a batch job waits up to four seconds for its start, any job that could not start at once half a minute or
# a whole one for the scheduler's next round, and one that ignores SIGTERM half a minute for SIGKILL.
_WITHOUT_WAITING = """\
slurm:
  extra:
    slurm.conf: |
      SchedulerParameters=batch_sched_delay=0,bf_interval=3,sched_interval=5
      KillWait=5
"""


def write_cluster_file(folder: Path, text: str) -> Path:
    """A cluster file in `folder` whose slurmctld starts and kills jobs seconds after it is asked to."""
    file = folder / "cluster.yaml"
    file.write_text(text + _WITHOUT_WAITING)
    return file


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """The cluster of all tests that want an ordinary one: as `up` makes it without options."""
    with running_cluster("test", request.param) as running:
        yield running


@pytest.fixture(scope="session")
def user(cluster: LocalCluster) -> str:
    """A user that no image has, made in the jail while the cluster runs, with a supplementary group."""
    cluster.jail("groupadd", "--gid", "2500", "lab").ok()
    cluster.add_user("ada", "--groups=lab")
    return "ada"


@pytest.fixture(scope="session")
def mpi_program(cluster: LocalCluster, user: str) -> str:
    """An Open MPI program, compiled in the jail by what apt installs there."""
    if not SlurmFeatures(cluster.status.release, "").pmix:
        pytest.skip(f"Slurm {cluster.status.release} of the distribution has no PMIx plugin")
    cluster.install("gcc", "libc6-dev", "libopenmpi-dev")
    cluster.jail("mpicc", "-o", "sum", "-x", "c", "-", user=user, stdin=_MPI_PROGRAM.read_text()).ok()
    return "./sum"


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    """A registry for all tests that push or pull; each uses repositories of its own (`repository_of`)."""
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def proxy(registry: RunningRegistry) -> Iterator[Proxy]:
    """A proxy in front of that registry, with faults to order."""
    with running_proxy(registry.host) as running:
        yield running


@pytest.fixture
def definitions(tmp_path: Path) -> Path:
    """The project's base (so that its image is found by its key) and nothing else."""
    folder = tmp_path / "images"
    folder.mkdir()
    shutil.copy(paths.PROJECT / "images" / "variants.yaml", folder)
    shutil.copytree(paths.PROJECT / "images" / "base", folder / "base")
    return folder
