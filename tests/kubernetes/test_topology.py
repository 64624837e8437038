# SPDX-License-Identifier: Apache-2.0
"""Where machines are, by a label of theirs, as Slurm's topology."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cellblock.cluster.definition.model import SlurmVariant
from cellblock.errors import CellblockError
from tests.kubernetes.rendered import found, rendered

ZONE = "topology.kubernetes.io/zone"
_SETS = """\
name: zones
node_sets:
  - {name: a, count: 2, resources: {cpu: 1, memory: 1Gi}, node_selector: {@: eu-1}}
  - {name: b, count: 2, resources: {cpu: 1, memory: 1Gi}, node_selector: {@: eu-2}}
  - {name: c, count: 4, resources: {cpu: 1, memory: 1Gi}, node_selector: {@: eu-1}, on_demand: {}}
partitions: [{name: main, default: true}]
kubernetes: {registry: registry.example/cellblock, topology: @}
""".replace("@", ZONE)
_ON_DEMAND = _SETS.replace("eu-1}}\n", "eu-1}, on_demand: {}}\n").replace("eu-2}}", "eu-2}, on_demand: {}}")
NEWER = SlurmVariant("debian14", "26.05", "/usr/lib/x86_64-linux-gnu/slurm")
OLDER = SlurmVariant("debian12", "22.05", "/usr/lib/x86_64-linux-gnu/slurm-wlm")


def files(folder: Path, text: str, variant: SlurmVariant = NEWER) -> dict[str, str]:
    """Slurm's configuration."""
    data: dict[str, str] = found(rendered(folder, text, variant), "ConfigMap", "slurm-configuration")["data"]
    return data


def test_nodes_say_where_they_are_and_those_on_demand_are_named(tmp_path: Path) -> None:
    (topology,) = yaml.safe_load(files(tmp_path, _SETS)["topology.yaml"])
    assert topology["tree"]["switches"] == [
        {"switch": "top", "children": "eu-1,eu-2"},
        {"switch": "eu-1", "nodes": "c-[1-4]"},
        {"switch": "eu-2"},
    ]
    pods = found(rendered(tmp_path, _SETS, NEWER), "StatefulSet", "b")["spec"]["template"]["spec"]
    told = {one["name"]: one["value"] for one in pods["containers"][0]["env"]}
    assert told["CELLBLOCK_NODE_CONF"].endswith(f" Topology={topology['topology']}:eu-2")


@pytest.mark.parametrize("variant", [OLDER, SlurmVariant("debian13", "24.11", "/usr/lib/slurm")])
def test_older_releases_have_a_tree_of_nodes_on_demand(variant: SlurmVariant, tmp_path: Path) -> None:
    made = files(tmp_path, _ON_DEMAND, variant)
    assert "TopologyPlugin=topology/tree" in made["slurm.conf"]
    assert "topology.yaml" not in made
    assert made["topology.conf"].splitlines()[1:] == [
        "SwitchName=top Switches=eu-1,eu-2",
        "SwitchName=eu-1 Nodes=a-[1-2],c-[1-4]",
        "SwitchName=eu-2 Nodes=b-[1-2]",
    ]


def test_older_releases_would_give_no_job_to_nodes_that_register_themselves(tmp_path: Path) -> None:
    with pytest.raises(CellblockError, match="gives no job to nodes that register themselves"):
        files(tmp_path, _SETS, OLDER)


def test_a_set_whose_place_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CellblockError, match="needs the place of set 'b'"):
        files(tmp_path, _SETS.replace(f", node_selector: {{{ZONE}: eu-2}}", ""))


def test_without_a_label_there_is_no_topology(tmp_path: Path) -> None:
    made = files(tmp_path, _SETS.replace(f", topology: {ZONE}", ""))
    assert not {"topology.conf", "topology.yaml"} & set(made)
    assert "Topology" not in made["slurm.conf"]


def test_a_zone_may_be_called_as_the_switch_above_all(tmp_path: Path) -> None:
    assert (
        "SwitchName=top_ Switches="
        in files(tmp_path, _ON_DEMAND.replace("eu-2", "top"), OLDER)["topology.conf"]
    )
