# SPDX-License-Identifier: Apache-2.0
"""Builds, assembles and starts one real cluster by the code of `up`, for all integration tests."""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.cluster import stop
from cellblock.cluster.configuration.slurm_features import SlurmFeatures
from cellblock.cluster.definition.cluster_file import default_file
from cellblock.cluster.engine.api import podman_environment
from cellblock.cluster.up import bring_up
from cellblock.cluster.up_request import UpRequest
from cellblock.events import Events
from cellblock.paths import PROJECT
from cellblock.variants import choose_variant, load_variants
from tests.integration.cluster.container_shell import ContainerShells
from tests.integration.condition import condition_of
from tests.integration.local_cluster import LocalCluster, Unclear
from tests.integration.registry import RunningRegistry, running_registry
from tests.integration.registry_proxy import Proxy, running_proxy
from tests.integration.state_folder import state_folder
from tests.ports import free_port

# The Slurm releases of Debian: 22.05, 24.11, 26.05.
EVERY_SLURM = ("debian12", "debian13", "debian14")
_MPI_PROGRAM = Path(__file__).with_name("mpi_sum.c")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One more try for a test that failed in a real cluster; what runs at night is left out by day.

    They share two cores with slurmctld, two slurmds and their steps, and wait for Slurm's own timers. Reruns
    are shown in the summary; what fails twice fails. Those of the escape suite, of which a single success of
    an attack counts, are tried again only when the attack did not come about.
    """
    here = Path(__file__).parent
    if "CELLBLOCK_OTHER_RELEASES" not in os.environ:
        config.hook.pytest_deselected(items=[item for item in items if _is_for_the_night(item)])
        items[:] = [item for item in items if not _is_for_the_night(item)]
    if os.environ.get("CELLBLOCK_TEST_AUTH") == "slurm":
        absent = pytest.mark.skip(reason="is about munge, and CELLBLOCK_TEST_AUTH is slurm")
        for item in items:
            if item.get_closest_marker("needs_munge"):
                item.add_marker(absent)
    for item in items:
        if here / "escape" in item.path.parents:
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=3, only_rerun=[Unclear.__name__]))
        elif here in item.path.parents:
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=3))


def _is_for_the_night(item: pytest.Item) -> bool:
    """Whether a test that is marked so has another release than the default one for a parameter."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    marked = item.get_closest_marker("others_at_night") is not None
    return marked and not set(other_variants()).isdisjoint(map(str, parameters.values()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed try leaves no job: one that holds a worker, or runs later, would fail the next try, too.

    When `on` gives up a command, that ends podman's client alone: an salloc goes on in the container.
    """
    report = yield
    running = _cluster_of(item)
    if report.failed and call.when != "teardown" and running and not running.spoiled:
        report.sections.append(("the cluster when the test failed", condition_of(running.request.name)))
        running.mend(item.nodeid)
    return report


@pytest.fixture(autouse=True)
def _usable(request: pytest.FixtureRequest) -> None:
    """Fail at once in a cluster that a test before has left without workers: each would wait for minutes."""
    for name in {"arena", "cluster"} & set(request.fixturenames):
        request.getfixturevalue(name)
    running = _cluster_of(request.node)
    if running and running.spoiled:
        pytest.fail(f"no worker of the cluster takes jobs any more, since {running.spoiled[0]} failed", False)


def _cluster_of(item: pytest.Item) -> LocalCluster | None:
    """The cluster that a test runs in, its own or that of the escape suite's arena."""
    values = getattr(item, "funcargs", {})  # a doctest has none
    running = getattr(values.get("arena"), "cluster", values.get("cluster"))
    return running if isinstance(running, LocalCluster) else None


@functools.cache
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


def _auth(text: str, variant: str) -> str:
    """CELLBLOCK_TEST_AUTH=slurm: what says to Slurm who asks is auth/slurm, where the variant has it."""
    asked = os.environ.get("CELLBLOCK_TEST_AUTH")
    release = choose_variant(load_variants(PROJECT / "images" / "variants.yaml"), variant).slurm.release
    own = re.search(r"^auth:", text, re.MULTILINE)
    return "" if not asked or own or not SlurmFeatures(release, "").auth_slurm else f"auth: {asked}\n"


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
        written = text or default_file().read_text(encoding="utf-8")
        asked = UpRequest(
            name=f"{prefix}{os.getpid()}",
            variant=variant or default_variant(),
            ssh_port=free_port(),
            jail_root=jail_root,
            file=write_cluster_file(folder, written + _auth(written, variant or default_variant())),
        )
        events = Events()
        shells = ContainerShells({**os.environ, **podman_environment()})
        try:
            yield LocalCluster(asked, bring_up(asked, events), shells)
        finally:
            shells.close()
            stop(asked.name, events, purge=True)


# Or a batch job waits up to four seconds for its start, any job that could not start at once half a minute or
# a whole one for the scheduler's next round, and one that ignores SIGTERM half a minute for SIGKILL.
_WITHOUT_WAITING = """\
slurm:
  extra:
    slurm.conf: |
      SchedulerParameters=nohold_on_prolog_fail,batch_sched_delay=0,bf_interval=3,sched_interval=5
      KillWait=5
"""


def write_cluster_file(folder: Path, text: str) -> Path:
    """A cluster file in `folder` whose slurmctld starts and kills jobs seconds after it is asked to.

    Unless it has lines of its own for Slurm's files.
    """
    file = folder / "cluster.yaml"
    file.write_text(text if "\nslurm:" in text else text + _WITHOUT_WAITING)
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
