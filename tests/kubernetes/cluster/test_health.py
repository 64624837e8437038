# SPDX-License-Identifier: Apache-2.0
"""What pods of nodes find out about themselves, and what jobs of the pod `health` find out about them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.kubernetes.helpers.kubernetes import Kubernetes
from tests.kubernetes.helpers.small_cluster import ROLES, SMALL, Site, bring_images, running_cluster

pytestmark = pytest.mark.integration

SPACE = "fit"
NODES = {"worker-0", "worker-1", "worker-2"}
# Nodes share two cores with other tests: nothing is slow, and what the machine lacks drains nobody.
_FILE = f"""\
name: fit
metrics: {{interval: 5}}
health:
  interval: 10s
  checks:
    memory: {{action: warn}}
    network: {{action: warn}}
    processor-speed: {{settings: {{seconds: 1, share: 1}}}}
    memory-speed: {{settings: {{seconds: 1, share: 1}}}}
    disk-speed: {{settings: {{mb: 4, share: 1}}}}
    pair-speed: {{settings: {{seconds: 1, share: 1}}}}
node_sets:
  - {{name: worker, count: 3, {SMALL}}}
"""


@pytest.fixture(scope="module")
def site(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    bring_images(kubernetes, (*ROLES, "metrics"))
    with running_cluster(kubernetes, tmp_path_factory.mktemp("fit"), _FILE, SPACE) as one:
        one.until("all nodes", lambda: {name for name in NODES if one.node(name)[0] == "idle"} == NODES)
        yield one


def verdicts(site: Site, node: str) -> dict[str, str]:
    """Check -> its last verdict, as the node itself shows them."""
    said = site.kubernetes.inside(node, "node-health", "--show", "--json", namespace=SPACE)
    return {one["check"]: one["verdict"] for one in json.loads(said)["checks"]}


def test_nodes_look_at_themselves(site: Site) -> None:
    """by the checks of the cluster file, before they register and in turns"""
    for node in NODES:
        found = verdicts(site, node)
        assert {found[check] for check in ("jail", "writable", "disk", "auth", "dns")} == {"passed"}, found
        assert "gpu" not in found
        assert "resources" not in found
        assert [check for check, verdict in found.items() if verdict == "failed"] == []
    site.until("the clock, against slurmctld's", lambda: verdicts(site, "worker-0")["clock"] == "passed")


def test_jobs_measure_nodes_and_the_exporter_shows_it(site: Site) -> None:
    """without being asked; those of a user's go on beside it"""
    checks = {"processor-speed", "memory-speed", "disk-speed", "pair-speed", "all-reduce"}

    def page() -> set[tuple[str, str, str]]:
        ask = ("get", "--raw", f"/api/v1/namespaces/{SPACE}/services/metrics:9341/proxy/metrics")
        sample = r'^cellblock_health_verdict\{node="([^"]*)",check="([^"]*)"\} (\d)'
        return set(re.findall(sample, site.kubernetes.run(*ask).stdout, re.MULTILINE))

    wanted = {(node, check, "0") for node in NODES for check in {*checks, "jail"}}
    site.until("all verdicts", lambda: page() >= wanted, 300)
    command = ("exec", f"--namespace={SPACE}", "deployment/health", "--", "active-checks", "worker-1")
    done = site.kubernetes.run(*command)
    assert re.search(r"^worker-1 +pair-speed +passed +\d+ MB a second; the median of 3", done.stdout, re.M), (
        done
    )
    assert "worker-1" in site.jail("srun", "--chdir=/", "--nodelist=worker-1", "hostname")
