# SPDX-License-Identifier: Apache-2.0
"""The jail's users and groups on controller, workers and login node, while root in the jail changes them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from cellblock.cluster.engine.container_specs import container_name
from tests.integration.cluster.test_cluster_jobs import ssh
from tests.integration.jobs import srun
from tests.integration.local_cluster import LocalCluster, podman

pytestmark = pytest.mark.integration

USER = "grace"
# Where accounts are looked up, and by whom.
LOOKING_UP = ("controller", "login")
# Seconds that srun waits for the jail's accounts (spank_jail/slurm/new_accounts.h).
KNOWN_S = 1.5


@pytest.fixture
def grace(cluster: LocalCluster) -> str:
    """A user whose groups include the system's, by the word of the jail's /etc/group."""
    # A uid that nobody had: slurmctld keeps the groups of one for ten minutes.
    cluster.add_user(USER, "--uid", "2710")
    cluster.jail("groupadd", "--force", "--gid", "2700", "optics").ok()
    cluster.jail("usermod", "--append", "--groups", "optics,root,shadow", USER).ok()
    cluster.jail("chage", "-E", "-1", USER).ok()
    return USER


def looked_up(cluster: LocalCluster, *command: str) -> list[str]:
    """What the C library on the controller and the login node says."""
    return [cluster.on(hostname, *command).out for hostname in LOOKING_UP]


def test_the_systems_groups_of_the_jail_do_not_count_on_nodes(cluster: LocalCluster, grace: str) -> None:
    cluster.wait_until("its group is seen", lambda: "optics" in looked_up(cluster, "id", "-nG", grace)[0])
    assert cluster.jail("id", "-nG", grace).ok().split() == [grace, "root", "shadow", "optics"]
    for groups in looked_up(cluster, "id", "-nG", grace):
        assert groups.split() == [grace, "optics"]
    step = srun(cluster, grace, "--chdir=/", "id", "-G").ok().split()
    assert step[1:] == ["2700"]


def test_users_come_and_go(cluster: LocalCluster) -> None:
    name = "newcomer"
    cluster.jail("useradd", "--create-home", name).ok()
    cluster.wait_until("seen", lambda: all(looked_up(cluster, "getent", "passwd", name)))
    # With the user, not after: who has no such line is refused.
    assert all(f"{name}:!:" in line for line in looked_up(cluster, "getent", "shadow", name))
    assert srun(cluster, name, "--chdir=/", "id", "-un").ok() == f"{name}\n"
    cluster.jail("usermod", "--home", "/srv", name).ok()
    cluster.wait_until(
        "moved", lambda: all(":/srv:" in line for line in looked_up(cluster, "getent", "passwd", name))
    )
    cluster.jail("userdel", name).ok()
    cluster.wait_until("gone", lambda: not any(looked_up(cluster, "getent", "passwd", name)))


def test_the_first_job_of_a_new_user_runs(cluster: LocalCluster) -> None:
    """Typed in one line: `srun` waits until slurmctld knows the user, whose copy is made a moment later."""
    for name, command in (("first", "srun"), ("second", "sbatch --wait --wrap"), ("third", "salloc srun")):
        cluster.jail("sh", "-c", f"useradd --create-home {name}; su - {name} -c '{command} true'").ok()


def test_the_first_job_waits_for_an_association_that_is_late(cluster: LocalCluster) -> None:
    """As on a busy machine: slurmdbd stands still for longer than the jail's accounts need."""
    accounting = container_name(cluster.request.name, "accounting")
    podman("pause", accounting)
    try:
        with ThreadPoolExecutor(1) as thread:
            typed = "useradd --create-home fourth; su - fourth -c 'srun true'"
            first = thread.submit(cluster.jail, "sh", "-c", typed)
            cluster.wait_until(
                "the controller knows the user",
                lambda: cluster.on("controller", "getent", "passwd", "fourth").status == 0,
            )
            time.sleep(2 * KNOWN_S)
            podman("unpause", accounting)
            first.result().ok()
    finally:
        subprocess.run(["podman", "unpause", accounting], check=False, capture_output=True)


def test_an_expired_account_comes_in_nowhere(cluster: LocalCluster, grace: str) -> None:
    folder = cluster.root / "home" / grace / ".ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    public = cluster.status.ssh_key.with_suffix(".pub")
    (folder / "authorized_keys").write_bytes(public.read_bytes())
    cluster.jail("chown", "-R", f"{grace}:", f"/home/{grace}/.ssh").ok()
    cluster.wait_until("it comes in", lambda: ssh(cluster, grace, "id -un") == f"{grace}\n")
    cluster.jail("chage", "-E", "0", grace).ok()
    try:
        cluster.wait_until("it does not", lambda: f"{grace}\n" not in ssh(cluster, grace, "id -un"))
    finally:
        cluster.jail("chage", "-E", "-1", grace).ok()


@contextmanager
def _replaced(path: Path) -> Iterator[None]:
    """While the jail's file is away. By the machine: nobody enters a jail without it."""
    kept = path.with_name(f"{path.name}.kept")
    path.rename(kept)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        kept.rename(path)


@pytest.mark.parametrize("file", ["passwd", "group", "shadow"])
@pytest.mark.parametrize("kind", ["p", "l"], ids=["fifo", "link"])
def test_no_look_up_waits_for_what_root_inside_makes_of_a_file(
    cluster: LocalCluster, grace: str, file: str, kind: str
) -> None:
    cluster.wait_until("its group is seen", lambda: "optics" in looked_up(cluster, "id", "-nG", grace)[0])
    with _replaced(cluster.root / "etc" / file):
        make = f"mkfifo /etc/{file}" if kind == "p" else f"ln -s /etc/hostname /etc/{file}"
        # Without --user, which would look root up in that very file.
        cluster.on("login", "jail-enter", "--", "sh", "-c", make).ok()
        for hostname in LOOKING_UP:
            # By then jail-accounts has looked at it, too.
            script = f"sleep 1; id -nG {grace}; getent shadow {grace}"
            done = cluster.on(hostname, "sh", "-c", script, timeout_s=30)
            assert done.out.splitlines()[0].split() == [grace, "optics"]
            assert done.out.splitlines()[1].startswith(f"{grace}:!:")
