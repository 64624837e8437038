# SPDX-License-Identifier: Apache-2.0
"""What a cluster file may say of the health of nodes, and what is written for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.cluster import ClusterSpec
from cellblock.cluster.configuration import config_files, template_facts
from cellblock.cluster.definition.cluster_file import ClusterFile, Metrics
from cellblock.cluster.definition.health_part import (
    Health,
    HealthActive,
    HealthCheck,
    active_checks,
    gpu_checks,
    own_checks,
)
from cellblock.cluster.definition.node_set import NodeSet, Resources
from cellblock.cluster.engine.container_specs import Mount, plan
from cellblock.errors import DefinitionError
from tests import documented

Make = Callable[..., ClusterSpec]


Load = Callable[[str], ClusterFile]


def test_what_the_page_shows_can_be_loaded(load: Load) -> None:
    (block,) = documented.blocks_for("health.md", "test_what_the_page_shows_can_be_loaded")
    disk = HealthCheck(strikes="2/3", settings={"full": 90})
    assert load(block.text).health == Health(leave_out=("leftovers",), checks={"disk": disk})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("health: {leave_out: [disc]}", "health.leave_out.0: there is no check 'disc'; did you mean 'disk'?"),
        ("health: {checks: {disc: {}}}", "health.checks.disc: there is no check 'disc'"),
        ("health: {checks: {disk: {strikes: 5/3}}}", "'5/3' is no N/M"),
        ("health: {checks: {disk: {settings: {strikes: 3}}}}", "strikes is a key of the check itself"),
        ('health: {checks: {disk: {settings: {places: "/a b"}}}}', "'/a b' is no setting"),
        ("health: {interval: 5s}", "'5s' is too short"),
        ("health: {folder: none-such}", "health.folder: there is no folder"),
        ("health: {budget: {percent: 101}}", "health.budget.percent"),
        ("health: {checks: {disk: {user: 'a b'}}}", "'a b' is no user"),
        ("health: {active: {every: 1s}}", "active.every: '1s' is too short: at least 1m"),
    ],
)
def test_what_health_may_not_say(load: Load, text: str, said: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        load(text)
    assert said in str(refused.value)


def test_a_site_may_have_checks_of_its_own(load: Load, tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    text = f"health: {{folder: {tmp_path}/ours, leave_out: [nvme-wear]}}"
    found = load(text).health
    assert found
    assert found.folder == f"{tmp_path}/ours"


def rendered(spec: ClusterSpec) -> dict[str, str]:
    return config_files.render(spec, template_facts.facts(spec, cpus=2, memory_mb=20000), "v2")


def with_health(spec: ClusterSpec, health: Health | None, **fields: object) -> ClusterSpec:
    return replace(spec, file=spec.file.model_copy(update={"health": health, **fields}))


def test_without_it_nothing_is_written(spec: Make) -> None:
    texts = rendered(with_health(spec(), None))
    assert "worker/health.conf" not in texts
    assert "Health" not in texts["slurm/slurm.conf"]
    assert "Prolog=" not in texts["slurm/slurm.conf"]


def test_what_is_written_for_nodes(spec: Make) -> None:
    disk = HealthCheck(strikes="2/3", limit="5s", undo=False, action="warn", settings={"full": 90})
    health = Health(leave_out=("dns", "clock"), checks={"disk": disk}, interval="30s")
    texts = rendered(with_health(spec(), health))
    assert [line for line in texts["worker/health.conf"].splitlines() if not line.startswith("#")] == [
        "budget least=2 percent=10 within=3600",
        "folder /usr/lib/cellblock/health-site",
        "check disk strikes=2/3 limit=5 action=warn undo=no full=90",
        "check dns off",
        "check clock off",
        *(f"check {name} off" for name in gpu_checks()),
    ]
    lines = texts["slurm/slurm.conf"].splitlines()
    assert "HealthCheckProgram=/usr/sbin/node-health" in lines
    assert "HealthCheckInterval=30" in lines
    assert "Prolog=/usr/lib/cellblock/health-prolog" in lines


def test_checks_that_are_jobs_are_the_controllers(spec: Make) -> None:
    """and theirs is a partition that only root uses, below all others"""
    slow = HealthCheck(settings={"share": 80})
    health = Health(
        leave_out=("all-reduce", "dns"),
        checks={"pair-speed": slow, "disk": HealthCheck(passes=1)},
        active=HealthActive(every="2h"),
    )
    texts = rendered(with_health(spec(), health))
    own = [line for line in texts["slurm/health-active.conf"].splitlines() if not line.startswith("#")]
    assert own == [
        "budget least=2 percent=10 within=3600",
        *(f"check {name} every=7200" for name in active_checks()),
        "check pair-speed share=80",
        "check all-reduce off",
        "check gpu-speed off",
    ]
    assert not any(
        "pair-speed" in line or "all-reduce" in line for line in texts["worker/health.conf"].splitlines()
    )
    (partition,) = [line for line in texts["slurm/slurm.conf"].splitlines() if "cellblock_health" in line]
    assert {
        "RootOnly=YES",
        "Hidden=YES",
        "PriorityTier=0",
        "PreemptMode=CANCEL",
        "OverSubscribe=EXCLUSIVE",
    } <= set(partition.split())


def test_without_active_checks_there_is_no_such_partition(spec: Make) -> None:
    texts = rendered(with_health(spec(), Health(active=None)))
    assert "slurm/health-active.conf" not in texts
    assert "cellblock_health" not in texts["slurm/slurm.conf"]


def test_gpus_are_looked_at_where_some_are_declared(spec: Make) -> None:
    gpus = NodeSet(name="gpus", gres={"gpu:a100": 4})
    texts = rendered(with_health(spec(), Health(), node_sets=(gpus,)))
    assert "check gpu" not in texts["worker/health.conf"]
    assert "gpu-speed off" not in texts["slurm/health-active.conf"]


def test_nodes_that_declare_more_than_there_is_are_not_held_to_it(spec: Make) -> None:
    many = NodeSet(name="many", resources=Resources(cpu=64))
    texts = rendered(with_health(spec(), Health(), node_sets=(many,)))
    assert "check resources off" in texts["worker/health.conf"].splitlines()


def test_the_sites_folder_is_seen_by_nodes_alone(spec: Make, tmp_path: Path) -> None:
    one = with_health(spec(), Health(folder="/srv/checks"))
    facts = template_facts.facts(one, cpus=2, memory_mb=20000)
    mount = Mount("/srv/checks", "/usr/lib/cellblock/health-site")
    containers = plan(one, facts, tmp_path, (), "v2", 100)
    assert {each.role for each in containers if mount in each.mounts} == {"worker"}


def test_the_controller_tells_the_exporter_what_its_jobs_found(spec: Make, tmp_path: Path) -> None:
    """and without metrics, or without such jobs, does not see the folder"""

    def told(health: Health | None, **fields: object) -> set[str]:
        one = with_health(spec(), health, **fields)
        images = {**one.images, "metrics": "image"}
        facts = template_facts.facts(one, cpus=2, memory_mb=20000)
        containers = plan(replace(one, images=images), facts, tmp_path, (), "v2", 100)
        target = "/mnt/jail-verdicts"
        return {each.role for each in containers if target in {mount.target for mount in each.mounts}}

    assert told(Health(), metrics=Metrics()) == {"controller"}
    assert told(Health(active=None), metrics=Metrics()) == set()
    assert told(Health()) == set()
    assert told(None, metrics=Metrics()) == set()


def test_each_check_of_the_table_is_on_the_page() -> None:
    page = (documented.PROJECT / "docs/health.md").read_text()
    assert [name for name in own_checks() + active_checks() if f"\n| `{name}` | " not in page] == []
