# SPDX-License-Identifier: Apache-2.0
"""Where machines are, by a label of theirs, as Slurm's topology."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from cellblock.build import BuildRequest, build_images
from cellblock.cluster.definition.model import SlurmVariant
from cellblock.cluster.engine.api import podman_environment
from cellblock.errors import CellblockError
from cellblock.events import Events
from tests.kubernetes.helpers.rendered import found, rendered

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
DEBIAN13 = SlurmVariant("debian13", "24.11", "/usr/lib/slurm")
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


@pytest.mark.parametrize("variant", [OLDER, DEBIAN13])
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


_BLOCKS = f", topology: {ZONE}", f", topology: {ZONE}, topology_block: 2"


def test_values_can_be_blocks(tmp_path: Path) -> None:
    (topology,) = yaml.safe_load(files(tmp_path, _SETS.replace(*_BLOCKS))["topology.yaml"])
    assert topology["block"] == {
        "block_sizes": [2],
        "blocks": [{"block": "eu-1", "nodes": "c-[1-4]"}, {"block": "eu-2"}],
    }
    made = files(tmp_path, _ON_DEMAND.replace(*_BLOCKS), DEBIAN13)
    assert "TopologyPlugin=topology/block" in made["slurm.conf"]
    assert made["topology.conf"].splitlines()[1:] == [
        "BlockName=eu-1 Nodes=a-[1-2],c-[1-4]",
        "BlockName=eu-2 Nodes=b-[1-2]",
        "BlockSizes=2",
    ]


def test_blocks_need_a_label_and_a_slurm_that_knows_them(tmp_path: Path) -> None:
    with pytest.raises(CellblockError, match="knows no blocks"):
        files(tmp_path, _ON_DEMAND.replace(*_BLOCKS), OLDER)
    with pytest.raises(CellblockError, match=r"goes with kubernetes\.topology"):
        files(tmp_path, _SETS.replace(_BLOCKS[0], ", topology_block: 2"))


def test_without_a_label_there_is_no_topology(tmp_path: Path) -> None:
    made = files(tmp_path, _SETS.replace(f", topology: {ZONE}", ""))
    assert not {"topology.conf", "topology.yaml"} & set(made)
    assert "Topology" not in made["slurm.conf"]


def test_a_zone_may_be_called_as_the_switch_above_all(tmp_path: Path) -> None:
    assert (
        "SwitchName=top_ Switches="
        in files(tmp_path, _ON_DEMAND.replace("eu-2", "top"), OLDER)["topology.conf"]
    )


# slurmctld alone, without keys, with what concerns the topology of a rendered configuration.
_SLURMCTLD = """\
cd /etc/slurm
cat >slurm.conf <<END
ClusterName=zones
SlurmctldHost=$(hostname)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
StateSaveLocation=/run/state
SlurmctldPidFile=/run/slurmctld.pid
MaxNodeCount=1024
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=60
@LINES@
PartitionName=main Nodes=ALL Default=YES State=UP
END
@FILES@
mkdir -p /run/state
slurmctld -D >/run/log 2>&1 &
for n in $(seq 150); do scontrol ping 2>/dev/null | grep -q UP && break; sleep 0.2; done
@NODES@
scontrol show topology
srun --test-only --nodes=2 --switches=1 true
srun --test-only --nodes=8 true
grep fatal /run/log; true
"""


@pytest.mark.integration
@pytest.mark.parametrize(
    ("variant", "text"), [(NEWER, _SETS), (DEBIAN13, _ON_DEMAND)], ids=["26.05", "24.11"]
)
def test_slurmctld_keeps_jobs_below_one_switch_and_gives_all_nodes(
    variant: SlurmVariant, text: str, tmp_path: Path
) -> None:
    said = _slurmctld_says(variant, text, tmp_path)
    assert _test_jobs(said) == ["b-[1-2]", "a-[1-2],b-[1-2],c-[1-4]"], said
    assert "SwitchName=eu-2 Level=0" in said
    assert "SwitchName=top Level=1" in said


@pytest.mark.integration
@pytest.mark.parametrize(
    ("variant", "text"), [(NEWER, _SETS), (DEBIAN13, _ON_DEMAND)], ids=["26.05", "24.11"]
)
def test_slurmctld_keeps_jobs_in_one_block_and_gives_all_nodes(
    variant: SlurmVariant, text: str, tmp_path: Path
) -> None:
    said = _slurmctld_says(variant, text.replace(*_BLOCKS), tmp_path)
    assert _test_jobs(said) == ["b-[1-2]", "a-[1-2],b-[1-2],c-[1-4]"], said
    assert "BlockName=eu-2" in said


def _test_jobs(said: str) -> list[str]:
    """The nodes that jobs would get."""
    return re.findall(r"to start at \S+ .*?using \d+ processors on nodes (\S+)", said)


def _slurmctld_says(variant: SlurmVariant, text: str, folder: Path) -> str:
    """What slurmctld answers with the topology of a cluster file."""
    made, texts = files(folder, text, variant), rendered(folder, text, variant)
    lines = [
        line for line in made["slurm.conf"].splitlines() if line.startswith(("NodeName=", "TopologyPlugin="))
    ]
    named = {name: made[name] for name in ("topology.conf", "topology.yaml") if name in made}
    nodes = []
    for name in ("a", "b") if "on_demand: {}}\n  - {name: b" not in text else ():
        pod = found(texts, "StatefulSet", name)["spec"]["template"]["spec"]["containers"][0]
        (conf,) = [one["value"] for one in pod["env"] if one["name"] == "CELLBLOCK_NODE_CONF"]
        nodes += [f"scontrol create NodeName={name}-{number} State=CLOUD {conf}" for number in (1, 2)]
    script = _SLURMCTLD.replace("@LINES@", "\n".join(lines)).replace("@NODES@", "\n".join(nodes))
    put = "\n".join(f"cat >{name} <<'END'\n{content}END" for name, content in named.items())
    said = _in_controller(variant.name, script.replace("@FILES@", put))
    assert "fatal" not in said, said
    return said


def _in_controller(variant: str, script: str) -> str:
    """What a script of sh prints in a container of the controller's image."""
    built = build_images(BuildRequest(("controller",), variant, load=True), Events())
    # Not its name: that means what any checkout of this machine loaded last.
    image = built.images["controller"].id
    command = ("podman", "run", "--rm", "--interactive", "--entrypoint=sh", image)
    environment = {**os.environ, **podman_environment()}
    done = subprocess.run(
        command, input=script, capture_output=True, text=True, check=False, timeout=180, env=environment
    )
    return done.stdout + done.stderr
