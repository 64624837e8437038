# SPDX-License-Identifier: Apache-2.0
"""Decides which tests may run side by side when `build.py test` runs all of them with five workers.

A group runs in one worker, one test after the other: tests that share a cluster, a daemon or an image, or
else those of a file. The long groups come first, so that the workers end together
(docs/decisions/ci-side-by-side.md). `build.py test --quick` leaves out what tests/slow.txt names.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import re
import signal
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests import deep_tree

with contextlib.suppress(ImportError):  # enroot's own tests run where there is pytest alone
    from hypothesis import HealthCheck, settings

    # The same examples each time: what a change breaks is found when it is made, and nothing by chance in
    # somebody else's. CELLBLOCK_EXAMPLES asks for others. A busy machine is no fault of an example's.
    settings.register_profile(
        "cellblock",
        deadline=None,
        derandomize="CELLBLOCK_EXAMPLES" not in os.environ,
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=True,
    )
    settings.load_profile("cellblock")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell has what it starts in the background ignore it, and so would all that the tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Long, with a cluster of its own for each variant.
_APART_BY_VARIANT = (
    "tests/integration/cluster/test_cluster_changes.py",
    "tests/integration/health/test_health.py",
    *(
        f"tests/integration/roles/test_{name}.py"
        for name in (
            "accounting",
            "auth_slurm",
            "backup",
            "external_database",
            "leaving_nodes",
            "metrics",
            "rest",
            "two_controllers",
        )
    ),
)
# In this order; what is not named follows as it is collected. Of five groups side by side about three wait
# for Slurm, and two compute.
_FIRST = (
    "tests/integration/escape",  # a quarter of its time is computing
    "tests/integration/escape capabilities",
    "cluster debian13",
    "tests/kubernetes/cluster",
    "tests/integration/build/test_slurm_source.py",  # 160 s and more, of both cores
    "tests/integration/push",
    "tests/integration/escape pid",
    "cluster debian12",
    "cluster debian14",
    "tests/launcher/test_launcher.py",
    "tests/integration/build/test_build.py",
    "tests/integration/packages",
    "tests/integration/escape debian12",
    "tests/integration/escape debian14",
    "tests/integration/docker_engine",
    "tests/integration/cluster/test_cluster_upgrade.py",
    "tests/integration/cluster/test_daemon_kills.py",
    "tests/integration/roles/test_rotation.py",
    *(f"{path} {variant}" for path in _APART_BY_VARIANT for variant in ("debian12", "debian13", "debian14")),
    "fuzzing",  # on what others leave idle
    "tests/integration/jail/test_jail_init.py",
    "tests/jail/volume/test_nfs.py",
    "tests/jail/apply/test_power_cut.py",
    "tests/jail/backup/test_exchanged_backups.py",
    "tests/jail/backup/test_backup.py",
    "tests/cli/test_cli.py",
    "tests/jail/test_assemble_filesystems.py",
    "tests/cli/test_completion.py",
    "tests/integration/cluster/test_soak.py",
)
# How many groups the last lines of a run name.
_LONGEST = 25
# Of what a test failed by before it ran again, so many characters are shown: a command's output with it.
_CAUSE_LENGTH = 1500
# The same, in the line written when it fails: of its begin, and of its end, where a command's error is.
_CAUSE_BEGIN, _CAUSE_END = 250, 150
# Seconds for a worker whose connection is gone to end.
_DYING_S = 20
# The targets of libFuzzer, of whatever file: one after the other, for each would have the idle cores.
_FUZZING = "::test_no_input_breaks_a_target"
# Tests of one folder that share what is dear to make.
_FOLDERS = (
    "tests/integration/docker_engine",
    "tests/integration/escape",
    "tests/integration/packages",
    "tests/integration/push",
    "tests/kubernetes/cluster",  # one Kubernetes, which takes fixed addresses of the machine
)
# Long, and content with a cluster of its own.
_APART = ("tests/integration/cluster/test_soak.py",)
# The id of a test in the shared cluster of a variant (tests/integration/conftest.py).
_CLUSTER = re.compile(r"^tests/integration/.*[\[-](debian\d+)[\]-]")
# The id of a test at the levels that most of the escape suite's tests are at: each has a cluster of its own.
_LEVEL = re.compile(r"^tests/integration/escape/test_escape\.py::test_holds\[.*\[(capabilities|pid)\]\]$")
# Those that no level makes a difference to, and wait for minutes: in the cluster that has least to do.
_ANY_LEVEL = re.compile(
    r"^tests/integration/escape/test_escape\.py::test_"
    r"(clients_that_are_stopped|steps_whose_sruns|many_connections_leave_slurmd|slurmctld_starts_with)"
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """By group. Not pytest-xdist's own marks for that: 3.8 does not see them with pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

        def mark_test_pending(self, item: str) -> None:
            """For pytest-rerunfailures, when a worker died: remove_node has put the test back already."""

    return ByGroup(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what tests/slow.txt names."""
    if any(item.nodeid.startswith(place) for place in slow_places()):
        item.add_marker("slow")


@functools.cache
def slow_places() -> tuple[str, ...]:
    """The lines of tests/slow.txt: how ids of tests begin."""
    lines = Path(__file__).with_name("slow.txt").read_text().splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the long groups first in a worker; one process alone runs them in the order of the files."""
    if hasattr(config, "workerinput"):
        rank = {name: number for number, name in enumerate(_FIRST)}
        items.sort(key=lambda item: rank.get(group_of(item.nodeid), len(rank)))


def pytest_collection_finish() -> None:
    """What thousands of tests were collected into stays: Python looks for garbage elsewhere."""
    gc.collect()
    gc.freeze()


def group_of(nodeid: str) -> str:
    """The group of a test: `fuzzing`, `cluster VARIANT`, a folder or a file, some by variant or level."""
    if _FUZZING in nodeid:
        return "fuzzing"
    path = nodeid.partition("::")[0]
    folder = next((folder for folder in _FOLDERS if path.startswith(f"{folder}/")), path)
    found = _CLUSTER.match(nodeid)
    if found and (folder.endswith("/escape") or path in _APART_BY_VARIANT):
        return f"{folder} {found[1]}"
    if level := _LEVEL.match(nodeid):
        return f"{folder} {level[1]}"
    if _ANY_LEVEL.match(nodeid):
        return f"{folder} pid"
    return f"cluster {found[1]}" if found and folder == path and path not in _APART else folder


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Name failures when they happen: a run that is ended from outside shows no summary."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter and hasattr(config.option, "numprocesses") and config.option.numprocesses:
        config.pluginmanager.register(_AtOnce(reporter))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Remove what pytest would stumble over when it removes the folders of earlier runs."""
    if not hasattr(session.config, "workerinput"):
        deep_tree.remove_left()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, Any, Any]:
    """Remove directories without end after the test, whatever became of it."""
    try:
        return (yield)
    finally:
        deep_tree.remove_made()


class _AtOnce:
    """Writes a line for each test that failed or runs again, and all of them again as the run's last."""

    def __init__(self, reporter: Any) -> None:
        self.reporter = reporter
        self.lines: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Say how a worker died: by a signal (of the kernel, for want of memory?), or by itself."""
        if error:
            ended = node.gateway._io.popen.wait(_DYING_S)
            memory = Path("/proc/meminfo").read_text().splitlines()[2].split(":")[1].strip()
            killed = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.M)
            self.reporter.ensure_newline()
            self.lines.append(
                f"WORKER {node.gateway.id} ended with {ended} (negative: a signal); {memory} of memory free;"
                f" for want of it the kernel has killed {killed[1] if killed else '?'} processes till now"
            )
            self.reporter.write_line(self.lines[-1])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called in the process that shows results, for each phase of each test."""
        if report.failed or str(report.outcome) == "rerun":
            self.reporter.ensure_newline()
            where = f"{report.outcome.upper()} ({report.when}, {report.duration:.0f} s) {report.nodeid}"
            cause = " ".join(_cause(report).split())
            if len(cause) > _CAUSE_BEGIN + _CAUSE_END:
                cause = f"{cause[:_CAUSE_BEGIN]} ... {cause[-_CAUSE_END:]}"
            self.lines.append(f"{where}: {cause}")
            self.reporter.write_line(self.lines[-1])

    def pytest_unconfigure(self) -> None:
        """Called after all summaries: who keeps the end of a long output keeps these."""
        for line in self.lines:
            self.reporter.write_line(line)


def _cause(report: Any) -> str:
    """Where and by what a test failed, as far as that is known."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return f"{Path(crash.path).name}:{crash.lineno}: {crash.message}" if crash else ""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say last which tests ran again and why (none is the aim), and in a whole run the longest groups."""
    reports = [
        report for kind in terminalreporter.stats.values() for report in kind if hasattr(report, "duration")
    ]
    if not reports:
        return
    if any(hasattr(report, "node") for report in reports):
        terminalreporter.section("longest groups")
        seconds: Counter[str] = Counter()
        for report in reports:
            seconds[group_of(report.nodeid)] += report.duration
        for group, total in seconds.most_common(_LONGEST):
            terminalreporter.write_line(f"{total:6.0f} s  {group}")
    again = terminalreporter.stats.get("rerun", [])
    terminalreporter.write_line(f"reruns: {len(again)}")
    for report in again:
        terminalreporter.write_line(f"       {report.nodeid}")
        terminalreporter.write_line(f"           {_cause(report)[:_CAUSE_LENGTH]}")
