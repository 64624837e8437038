# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests on a real Kubernetes of two nodes; without one they are skipped and say why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cellblock.bench.harness.real_kubernetes import program, running_kubernetes, why_not
from tests.kubernetes.helpers.kubernetes import Kubernetes, machine_address
from tests.kubernetes.helpers.page_cluster import PageCluster, typed_cluster
from tests.kubernetes.helpers.small_cluster import ROLES, SMALL, Site, bring_images, running_cluster

_skipped: list[str] = []


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    found = program()
    if found is None:
        _skipped.append(why_not())
        pytest.skip(f"NOT RUN on a real Kubernetes: {why_not()}")
    with running_kubernetes(found, tmp_path_factory.mktemp("kubernetes")) as one:
        yield Kubernetes(one.program, one.folder, one.configuration)


@pytest.fixture(scope="session")
def cluster(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageCluster]:
    """The cluster of docs/kubernetes.md; tests leave it with two idle nodes."""
    with typed_cluster(kubernetes, tmp_path_factory.mktemp("page")) as one:
        yield one


@pytest.fixture(scope="session")
def small(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A cluster with accounting, metrics and two workers, for tests that leave it as it was."""
    text = f"""\
name: small
accounting: {{}}
metrics: {{interval: 5}}
jail: {{root: operator}}
node_sets:
  - {{name: worker, count: 2, {SMALL}}}
"""
    closed = f"  closed_to_jobs: [{machine_address(kubernetes)}/32]\n"
    bring_images(kubernetes, (*ROLES, "accounting", "database", "metrics"))
    with running_cluster(kubernetes, tmp_path_factory.mktemp("small"), text, "small", more=closed) as one:
        one.until("two nodes", lambda: [one.node(f"worker-{n}")[0] for n in (0, 1)] == ["idle"] * 2)
        yield one


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say it once more, where it is read."""
    if _skipped:
        terminalreporter.section("NOT RUN on a real Kubernetes", red=True)
        terminalreporter.write_line(
            f"tests/kubernetes/cluster: nothing was applied to a cluster: {_skipped[0]}"
        )
