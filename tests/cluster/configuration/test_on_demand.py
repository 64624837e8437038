# SPDX-License-Identifier: Apache-2.0
"""Node sets on demand: what a cluster file may say of them, and what Slurm is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cellblock.cluster import ClusterSpec
from cellblock.cluster.configuration import config_files, template_facts
from cellblock.cluster.definition.cluster_file import ClusterFile, load_cluster_file
from cellblock.errors import DefinitionError, UsageError

SETS = """\
node_sets:
  - {name: cpu, count: 2, resources: {cpu: 4, memory: 8Gi}}
  - {name: burst, count: 16, gres: {gpu: 2}, weight: 5, resources: {cpu: 4, memory: 8Gi}, on_demand: %s}
"""


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], ClusterFile]:
    """The cluster file whose set `burst` is on demand as a text says."""

    def of(on_demand: str, more: str = "") -> ClusterFile:
        path = tmp_path / "cluster.yaml"
        path.write_text(SETS % on_demand + more)
        return load_cluster_file(path)

    return of


def slurm_conf(file: ClusterFile, release: str = "24.11") -> list[str]:
    variant = SimpleNamespace(name="any", release=release, plugin_dir="/usr/lib/slurm")
    described = cast(ClusterSpec, SimpleNamespace(file=file, variant=variant))
    texts = config_files.render(described, template_facts.facts(described, 4, 16000), "disabled")
    return [line for line in texts["slurm/slurm.conf"].splitlines() if line and not line.startswith("#")]


def test_nodes_on_demand_are_cloud_nodes_with_times_of_their_own(load: Callable[..., ClusterFile]) -> None:
    always = slurm_conf(load("null"))
    file = load("{idle_after: 5m, min: 2, start_within: 10m}")
    assert [line for line in slurm_conf(file) if line not in always] == [
        "ResumeProgram=/usr/lib/cellblock/node-resume",
        "ResumeFailProgram=/usr/lib/cellblock/node-resume-failed",
        "SuspendProgram=/usr/lib/cellblock/node-suspend",
        "ResumeRate=0",
        "SuspendRate=0",
        "SuspendExcNodes=burst-[1-2]",
        "NodeName=burst-[1-16] CPUs=4 RealMemory=8192 Feature=burst Weight=5 Gres=gpu:2 State=CLOUD",
        "PartitionName=on_demand_burst Nodes=burst-[1-16] Hidden=YES State=INACTIVE SuspendTime=300"
        " ResumeTimeout=720 SuspendTimeout=60",
    ]
    assert set(always) <= set(slurm_conf(file))


def test_all_may_go(load: Callable[..., ClusterFile]) -> None:
    assert not [line for line in slurm_conf(load("{}")) if line.startswith("SuspendExcNodes")]


@pytest.mark.parametrize(("release", "asked"), [("22.05", True), ("23.11", False), ("26.05", False)])
def test_nodes_tell_their_addresses_and_are_shown(
    load: Callable[..., ClusterFile], release: str, asked: bool
) -> None:
    """From 23.11 on they do it by themselves, and 24.11 complains of the word; nor are they hidden."""
    parameters = next(line for line in slurm_conf(load("{}"), release) if "SlurmctldParameters" in line)
    assert ("cloud_reg_addrs" in parameters) == asked
    assert ("PrivateData=cloud" in slurm_conf(load("{}"), release)) == asked


@pytest.mark.parametrize(
    ("on_demand", "more", "error"),
    [
        ("{min: 17}", "", "node_sets.1.on_demand.min: 17 nodes are more than `count: 16`"),
        ("{start_within: 13h}", "", "'13h' is too long: at most 12h"),
        ("{idle_after: never}", "", "'never' is no time"),
        ("{max: 3}", "", "max"),
        (
            "{}",
            "slurm: {extra: {slurm.conf: 'SuspendTime=5'}}\n",
            "suspendtime: set by Cellblock where node sets are `on_demand`",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    load: Callable[..., ClusterFile], on_demand: str, more: str, error: str
) -> None:
    with pytest.raises(DefinitionError) as raised:
        load(on_demand, more)
    assert error in str(raised.value)


def test_a_site_may_suspend_nodes_that_are_always_there(load: Callable[..., ClusterFile]) -> None:
    assert "SuspendTime=5" in slurm_conf(load("null", "slurm: {extra: {slurm.conf: 'SuspendTime=5'}}\n"))


def test_one_machine_has_no_pods(load: Callable[..., ClusterFile], spec: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="node set burst: `on_demand` has pods made") as raised:
        spec(file=load("{}"))
    assert "remove `on_demand` from the cluster file" in raised.value.hint
    assert isinstance(spec(file=load("null")), ClusterSpec)
