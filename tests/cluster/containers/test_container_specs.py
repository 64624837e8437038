# SPDX-License-Identifier: Apache-2.0
"""What each container is given."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.cluster import ClusterSpec
from cellblock.cluster.configuration import template_facts
from cellblock.cluster.engine.capabilities import capabilities
from cellblock.cluster.engine.container_specs import Container, plan
from cellblock.cluster.facts.host import CgroupMode, Limit
from cellblock.errors import UsageError
from tests.cluster.conftest import with_rest

Make = Callable[..., ClusterSpec]


def planned(spec: ClusterSpec, cgroup: CgroupMode = "disabled", cpus: int = 2) -> dict[str, Container]:
    facts = template_facts.facts(spec, cpus=cpus, memory_mb=20000)
    containers = plan(spec, facts, Path("/state"), (Limit("nofile", 1024),), cgroup, 4096)
    return {container.hostname: container for container in containers}


def mounts(container: Container) -> dict[str, str]:
    return {mount.target: f"{mount.source}{' rw' if mount.writable else ''}" for mount in container.mounts}


def test_the_roles_and_as_many_workers_as_asked_for(spec: Make) -> None:
    assert list(planned(spec(workers=3))) == ["controller", "worker-1", "worker-2", "worker-3", "login"]


def test_a_worker_writes_the_jail_and_nothing_else(spec: Make, volume: Path) -> None:
    assert mounts(planned(spec())["worker-1"]) == {
        "/mnt/jail": f"{volume} rw",
        "/run/secrets/cellblock": "/state/secrets/munge",
        "/etc/cellblock": "/state/config/worker",
    }


def test_with_auth_slurm_daemons_get_its_key_and_the_others_none(spec: Make) -> None:
    made = with_rest(spec())
    containers = planned(replace(made, file=made.file.model_copy(update={"auth": "slurm"})))
    secret = "/run/secrets/cellblock"
    assert mounts(containers["worker-1"])[secret] == "/state/secrets/slurm"
    told = {host: one.environment.get("CELLBLOCK_AUTH") for host, one in containers.items()}
    assert told == {
        "controller": "slurm",
        "worker-1": "slurm",
        "worker-2": "slurm",
        "login": "slurm",
        "rest": None,
    }
    assert secret not in mounts(containers["rest"])


def test_a_workers_root_is_read_only_and_what_it_writes_is_in_memory(spec: Make) -> None:
    containers = planned(spec())
    assert containers["worker-1"].read_only
    # slurmd's spool, its log, its sockets and the holder of jobs' mounts, sbcast's files, accounts.
    writable = {"/var/spool", "/var/log", "/run", "/run/bcast", "/var/lib/extrausers"}
    assert writable < set(containers["worker-1"].tmpfs)
    # Users write in one of them, through sbcast.
    worlds = {path for path, options in containers["worker-1"].tmpfs.items() if "mode=1777" in options}
    assert worlds == {"/run/bcast"}
    assert "mode=0711" in containers["worker-1"].tmpfs["/var/spool"]
    assert all("nosuid,nodev" in options for options in containers["worker-1"].tmpfs.values())
    # Batch scripts are executed from the one, broadcast programs from the other.
    may_run = {path for path, options in containers["worker-1"].tmpfs.items() if "noexec" not in options}
    assert may_run == {"/var/spool", "/run/bcast"}


@pytest.mark.parametrize("cpus", [2, 128])
def test_the_spool_has_room_for_the_script_of_a_job_on_each_processor(spec: Make, cpus: int) -> None:
    """Slurm takes 4 MiB each, and drains a node whose spool is full."""
    size = re.search(r"size=(\d+)m", planned(spec(), cpus=cpus)["worker-1"].tmpfs["/var/spool"])
    assert size
    assert int(size[1]) >= 4 * cpus + 128


def test_the_controller_sees_the_jails_users_and_not_the_jail(spec: Make, volume: Path) -> None:
    assert mounts(planned(spec())["controller"]) == {
        "/etc/slurm": "/state/config/slurm",
        "/run/secrets/cellblock": "/state/secrets/controller",
        "/mnt/jail-etc": f"{volume}/root/etc",
        "/var/lib/slurm/slurmctld": "/state/slurmctld rw",
    }


def test_the_c_library_of_no_daemon_reads_the_jails_accounts_itself(spec: Make) -> None:
    """a FIFO there would have it wait for ever: jail-accounts copies them"""
    targets = {path for one in planned(spec()).values() for path in mounts(one)}
    assert "/var/lib/extrausers" not in targets


def test_processes_of_each_container_have_a_limit(spec: Make) -> None:
    assert {one.pids_limit for one in planned(spec()).values()} == {4096}


def test_a_user_may_have_a_part_of_the_processes_where_users_are(spec: Make) -> None:
    told = {name: dict(one.environment).get("CELLBLOCK_USER_PROCESSES") for name, one in
            planned(spec(workers=1)).items()}  # fmt: skip
    assert told == {"controller": None, "worker-1": "512", "login": "512"}


def test_ssh_is_published_on_the_loopback_address_only(spec: Make) -> None:
    containers = planned(spec(ssh_port=2345))
    assert containers["login"].ports == {"22/tcp": ("127.0.0.1", 2345)}
    assert not containers["controller"].ports
    assert not containers["worker-1"].ports


def test_a_private_cgroup_tree_is_for_workers_that_use_it(spec: Make) -> None:
    assert planned(spec(), "v2")["worker-1"].private_cgroup
    assert planned(spec(), "v2")["worker-1"].environment["CELLBLOCK_CGROUP"] == "v2"
    assert not planned(spec(), "v2")["login"].private_cgroup
    assert not planned(spec())["worker-1"].private_cgroup


def test_what_root_inside_is_to_slurm_is_told_where_there_is_a_jail(spec: Make) -> None:
    told = {name: dict(one.environment).get("CELLBLOCK_JAIL_ROOT") for name, one in
            planned(spec(workers=1, jail_root="nobody")).items()}  # fmt: skip
    assert told == {"controller": None, "worker-1": "nobody", "login": "nobody"}


def test_the_controller_may_not_mount() -> None:
    assert "SYS_ADMIN" not in capabilities("controller")
    assert "SYS_ADMIN" in capabilities("worker")


@pytest.mark.parametrize("role", ["controller", "worker", "login"])
def test_no_container_may_load_modules_or_touch_devices(role: str) -> None:
    forbidden = {"SYS_MODULE", "SYS_RAWIO", "MKNOD", "SYS_PTRACE", "NET_ADMIN", "SYS_BOOT", "SYS_TIME"}
    assert not forbidden & set(capabilities(role))  # type: ignore[arg-type]


def test_slurmrestd_sees_no_secret_and_no_jail_and_has_no_right(spec: Make) -> None:
    rest = planned(with_rest(spec(workers=1)))["rest"]
    assert mounts(rest) == {"/etc/slurm": "/state/config/slurm", "/var/lib/extrausers": "/state/accounts"}
    assert (rest.user, rest.cap_add, rest.read_only) == ("slurmrestd", (), True)
    assert rest.ports == {"6820/tcp": ("127.0.0.1", 6820)}


def test_each_slurmrestd_has_a_port_of_its_own(spec: Make) -> None:
    containers = planned(with_rest(spec(workers=1), replicas=3, port=7000))
    ports = {name: one.rest_port for name, one in containers.items() if one.role == "rest"}
    assert ports == {"rest": 7000, "rest-2": 7001, "rest-3": 7002}


def test_who_checks_tokens_waits_for_their_key_and_nobody_else(spec: Make) -> None:
    assert "rest" not in planned(spec())
    for made, told in ((spec(workers=1), set()), (with_rest(spec(workers=1)), {"controller"})):
        waiting = {name for name, one in planned(made).items() if "CELLBLOCK_TOKENS" in one.environment}
        assert waiting == told


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_profiles_that_forbid_mounts_are_lifted_only_where_mounts_are_made(spec: Make, engine: str) -> None:
    # AppArmor is on by default in Debian and Ubuntu, and both engines' profiles say `deny mount`.
    lifted = ("seccomp=unconfined", "apparmor=unconfined")
    told = {name: one.security_opt for name, one in planned(spec(workers=1, engine=engine)).items()}
    assert told == {"controller": (), "worker-1": lifted, "login": lifted}


@pytest.mark.parametrize(
    "fields", [{"name": "Not-a-name"}, {"name": "a" * 41}, {"workers": 0}, {"ssh_port": 70000}]
)
def test_what_no_cluster_can_be_is_refused(spec: Make, fields: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        spec(**fields)
