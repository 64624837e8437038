# SPDX-License-Identifier: Apache-2.0
"""What is written for Slurm, to the letter."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cellblock.cluster import ClusterSpec
from cellblock.cluster.configuration import config_files, template_facts
from cellblock.cluster.definition.cluster_file import Accounting
from cellblock.cluster.facts.host import CgroupMode
from cellblock.errors import CellblockError
from cellblock.paths import PROJECT
from tests.cluster.conftest import with_rest

_BASE = PROJECT / "images" / "base" / "image.yaml"
_IDS_FOR_JAIL = PROJECT / "images" / "slurm" / "files" / "usr" / "lib" / "cellblock" / "ids-for-jail.sh"

Make = Callable[..., ClusterSpec]


def rendered(spec: ClusterSpec, cgroup: CgroupMode = "disabled") -> dict[str, str]:
    return config_files.render(spec, template_facts.facts(spec, cpus=2, memory_mb=20000), cgroup)


def settings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_slurm_conf_of_24_11_without_cgroup_v2(spec: Make) -> None:
    assert settings(rendered(spec())["slurm/slurm.conf"]) == [
        "ClusterName=test",
        "SlurmctldHost=controller",
        "SlurmctldParameters=enable_configless,disable_triggers,idle_on_node_suspend",
        "MaxNodeCount=256",
        "TreeWidth=65533",
        "SlurmdPort=618",
        "AuthType=auth/munge",
        "CommunicationParameters=block_null_hash,block_zero_hash",
        "SlurmUser=slurm",
        "SlurmdUser=root",
        "JobSubmitPlugins=lua,jail",
        "JobCompType=jobcomp/lua",
        "StateSaveLocation=/var/lib/slurm/slurmctld",
        "SlurmdSpoolDir=/var/spool/slurmd",
        "SlurmctldPidFile=/run/slurmctld/slurmctld.pid",
        "SlurmdPidFile=/run/slurmd.pid",
        "SlurmdLogFile=/var/log/slurm/slurmd.log",
        "LogTimeFormat=iso8601_ms,format_stderr",
        "SlurmctldDebug=info",
        "SlurmdDebug=info",
        "MailProg=/bin/true",
        "SlurmctldTimeout=180",
        "SlurmdTimeout=180",
        "MessageTimeout=60",
        "TCPTimeout=15",
        "UnkillableStepTimeout=600",
        "ReturnToService=2",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/affinity",
        "JobAcctGatherType=jobacct_gather/linux",
        "PrologFlags=Contain",
        "LaunchParameters=use_interactive_step",
        "PropagateResourceLimits=NONE",
        "KillOnBadExit=1",
        "BcastParameters=DestDir=/run/bcast",
        "MpiDefault=pmix",
        "SchedulerParameters=nohold_on_prolog_fail",
        "SchedulerType=sched/backfill",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "DefMemPerCPU=4500",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
    ]


def test_with_cgroup_v2_jobs_are_tracked_and_constrained_by_it(spec: Make) -> None:
    texts = rendered(spec(), "v2")
    lines = settings(texts["slurm/slurm.conf"])
    assert "ProctrackType=proctrack/cgroup" in lines
    assert "TaskPlugin=task/cgroup,task/affinity" in lines
    assert "JobAcctGatherType=jobacct_gather/cgroup" in lines
    assert settings(texts["slurm/cgroup.conf"]) == [
        "CgroupPlugin=cgroup/v2",
        "IgnoreSystemd=yes",
        "ConstrainCores=yes",
        "ConstrainDevices=yes",
        "ConstrainRAMSpace=yes",
        "ConstrainSwapSpace=no",
    ]


@pytest.mark.parametrize(
    ("release", "lines"),
    [
        ("21.08", []),
        ("22.05", []),
        ("23.11", ["CgroupPlugin=disabled"]),
        ("26.05", ["CgroupPlugin=disabled"]),
    ],
)
def test_cgroups_are_switched_off_by_name_where_the_release_knows_it(
    spec: Make, release: str, lines: list[str]
) -> None:
    assert settings(rendered(spec(release))["slurm/cgroup.conf"]) == lines


def test_slurm_21_08_has_no_cgroup_v2_plugin(spec: Make) -> None:
    assert template_facts.cgroup_for(spec("21.08"), "v2") == "disabled"
    assert template_facts.cgroup_for(spec("22.05"), "v2") == "v2"


def test_slurm_21_08_has_no_nodes_that_register_themselves(spec: Make) -> None:
    lines = settings(rendered(spec("21.08", workers=3))["slurm/slurm.conf"])
    assert "NodeName=worker-[1-3] CPUs=2 RealMemory=6000 Feature=worker" in lines
    assert not [line for line in lines if line.startswith(("MaxNodeCount", "TreeWidth"))]


@pytest.mark.parametrize(("release", "named"), [("21.08", True), ("22.05", True), ("24.11", False)])
def test_the_login_node_is_named_where_slurmctld_wakes_srun_only_on_nodes(
    spec: Make, release: str, named: bool
) -> None:
    lines = settings(rendered(spec(release))["slurm/slurm.conf"])
    assert ("NodeName=login State=FUTURE" in lines) is named
    # It is in no partition.
    nodes = "worker" if named else "ALL"
    assert f"PartitionName=main Nodes={nodes} Default=YES MaxTime=INFINITE State=UP" in lines
    assert ("NodeSet=worker Feature=worker" in lines) is named


@pytest.mark.parametrize(
    ("release", "mpi", "metrics"),
    [("24.11", "pmix", False), ("25.11", "none", False), ("26.05", "none", True)],
)
def test_what_a_release_brings_or_lacks(spec: Make, release: str, mpi: str, metrics: bool) -> None:
    lines = settings(rendered(spec(release))["slurm/slurm.conf"])
    assert f"MpiDefault={mpi}" in lines
    assert ("MetricsType=metrics/openmetrics" in lines) is metrics


def test_system_users_in_the_job_submit_plugin_are_those_of_the_images(spec: Make) -> None:
    lua = rendered(spec())["slurm/job_submit.lua"]
    ids = {user["name"]: user["uid"] for user in yaml.safe_load(_BASE.read_text())["users"]}
    assert f"local SLURM = {ids['slurm']}\n" in lua
    assert all(60001 <= uid <= 65535 for uid in ids.values())
    assert "local FIRST_USER, FIRST_RESERVED, LAST_RESERVED = 1000, 60001, 65535\n" in lua
    assert 'SYSTEM_UIDS="0-999 60001-65535"\n' in _IDS_FOR_JAIL.read_text()
    assert 'SYSTEM_GIDS="0-99 101-999 60001-65535"\n' in _IDS_FOR_JAIL.read_text()
    # The node's plugin and the copy of the accounts say the same.
    native = PROJECT / "spank_jail"
    assert '"1000-60000,65536-4294967293"' in (native / "options" / "arguments.h").read_text()
    limits = (native / "node" / "account_limits.h").read_text()
    assert "FIRST_ID 1000U" in limits
    assert "RESERVED_FIRST 60001U" in limits


def test_plugstack_is_whole_and_the_jail_required(spec: Make) -> None:
    assert settings(rendered(spec(jail_root="operator"))["slurm/plugstack.conf"]) == [
        "required /usr/lib/x86_64-linux-gnu/slurm-wlm/spank_jail.so root=/mnt/jail/root "
        "plan=/etc/cellblock/jail.fstab level=capabilities",
        "required /usr/lib/x86_64-linux-gnu/slurm-wlm/pyxis.so jail_enter=/usr/sbin/jail-enter",
    ]


def test_plans_of_worker_and_login_differ_only_where_they_must(spec: Make) -> None:
    texts = rendered(spec(jail_root="operator"))
    driver = "/run/cellblock/driver/current"
    worker = {" ".join(line.split()) for line in settings(texts["worker/jail.fstab"])}
    login = {" ".join(line.split()) for line in settings(texts["login/jail.fstab"])}
    assert worker - login == {
        "/var/spool/slurmd/conf-cache /etc/slurm none bind,ro,x-create=dir",
        "/run/bcast /run/bcast none bind,ro,nosuid,x-create=dir",
        "/dev/fuse /dev/fuse none bind,nosuid,noexec,x-create=file,nofail",
        "proc /proc proc hidepid=ptraceable",
        f"cdi cellblock.driver/node=all cdi spec-dir={driver},nofail,x-jail.if={driver}/driver.json",
    }
    assert login - worker == {
        "/etc/slurm /etc/slurm none bind,ro,x-create=dir",
        "proc /proc proc hidepid=invisible",
    }
    assert "/run/munge /run/munge none bind,ro,x-create=dir" in worker & login


def test_root_inside_is_nobody_to_slurm_by_a_munged_of_the_jails_own(spec: Make) -> None:
    texts = rendered(spec())
    for plan in ("worker/jail.fstab", "login/jail.fstab"):
        sources = {line.split()[1]: line.split()[0] for line in settings(texts[plan])}
        assert sources["/run/munge"] == "/run/munge-for-jail"
    # slurmstepd is not to be nobody while it is in the window.
    assert settings(texts["slurm/plugstack.conf"])[0].split()[-1] == "window=/run/munge"


def test_auth_slurm_and_a_sackd_of_the_jails_own(spec: Make) -> None:
    made = spec()
    file = made.file.model_copy(update={"auth": "slurm", "accounting": Accounting()})
    texts = rendered(replace(made, file=file))
    assert {"AuthType=auth/slurm", "CredType=cred/slurm"} < set(settings(texts["slurm/slurm.conf"]))
    assert "AuthType=auth/slurm" in settings(texts["accounting/slurmdbd.conf"])
    for plan in ("worker/jail.fstab", "login/jail.fstab"):
        sources = {line.split()[1]: line.split()[0] for line in settings(texts[plan])}
        assert sources["/run/slurm"] == "/run/slurm-for-jail"
        assert "/run/munge" not in sources
    assert settings(texts["slurm/plugstack.conf"])[0].split()[-1] == "window=/run/slurm"
    read = [text for name, text in texts.items() if not name.endswith(".lua")]
    assert "munge" not in "".join("\n".join(settings(text)) for text in read)


def test_every_line_of_a_plan_has_the_four_fields_of_fstab(spec: Make) -> None:
    for line in settings(rendered(spec())["worker/jail.fstab"]):
        assert len(line.split()) == 4, line


def test_workers_share_the_memory_and_leave_a_tenth(spec: Make) -> None:
    facts = template_facts.facts(spec(workers=3), cpus=4, memory_mb=30000)
    assert ([one.memory_mb for one in facts.node_sets], facts.memory_per_cpu_mb) == ([9000], 2250)


def test_written_files_are_readable_by_all_and_writable_by_root_alone(spec: Make, tmp_path: Path) -> None:
    config_files.write(tmp_path / "config", rendered(spec()))
    for path in (tmp_path / "config").rglob("*"):
        expected = 0o755 if path.is_dir() else 0o644
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_writing_again_leaves_nothing_of_before(tmp_path: Path) -> None:
    config_files.write(tmp_path / "config", {"slurm/old.conf": "old\n"})
    config_files.write(tmp_path / "config", {"slurm/new.conf": "new\n"})
    assert [path.name for path in (tmp_path / "config" / "slurm").iterdir()] == ["new.conf"]


def test_a_template_that_names_what_does_not_exist_is_refused(spec: Make, tmp_path: Path) -> None:
    for name in set(config_files.TEMPLATES.values()):
        (tmp_path / name).write_text("{{ cluster.nmae }}\n")
    one = spec()
    with pytest.raises(CellblockError, match=r"deploy/slurm/slurm.conf.j2: .*nmae"):
        config_files.render(one, template_facts.facts(one, 2, 20000), "disabled", tmp_path)


def test_tokens_are_taken_where_there_is_a_rest_api_and_made_by_the_operator_alone(spec: Make) -> None:
    assert not [line for line in settings(rendered(spec())["slurm/slurm.conf"]) if "AuthAlt" in line]
    lines = settings(rendered(with_rest(spec()))["slurm/slurm.conf"])
    assert "AuthAltTypes=auth/jwt" in lines
    (parameters,) = (line.partition("=")[2] for line in lines if line.startswith("AuthAltParameters="))
    assert set(parameters.split(",")) == {"jwt_key=/run/slurmctld/jwt_hs256.key", "disable_token_creation"}
