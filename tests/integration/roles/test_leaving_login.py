# SPDX-License-Identifier: Apache-2.0
"""A login node says to its sessions that it ends, and waits; what a user puts there is not written to."""

from __future__ import annotations

import subprocess
import time

import pytest

from cellblock.cluster.engine.container_specs import container_name
from tests.integration.local_cluster import LocalCluster

# Nothing of Slurm's is in it.
pytestmark = [pytest.mark.integration, pytest.mark.every_slurm, pytest.mark.others_at_night]

LEAVE = "/usr/lib/cellblock/login-leave"
TOLD = "This login node ends in"


def session(cluster: LocalCluster, user: str, script: str) -> subprocess.Popen[str]:
    """A session of `user` with a terminal, which runs `script` in the jail."""
    container = container_name(cluster.request.name, "login")
    command = ("jail-enter", "--user", user, "--", "bash", "-c", script)
    return subprocess.Popen(
        ["podman", "exec", "-it", container, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=cluster.shells.environment,
    )


def test_sessions_are_told_and_waited_for(cluster: LocalCluster, user: str) -> None:
    mark = cluster.root / "home" / user / "session"
    mark.unlink(missing_ok=True)
    running = session(cluster, user, "touch ~/session; sleep 5; echo over")
    try:
        cluster.wait_until("the session runs", mark.exists)
        began = time.monotonic()
        cluster.on("login", LEAVE, "60").ok()
        assert time.monotonic() - began < 40
        said = running.communicate(timeout=60)[0]
        # Without sshd, jail-enter has a terminal, too, and passes on what is on the one inside.
        assert said.count(TOLD) == 2
        assert "over" in said
        refused = cluster.on("login", "cat", "/run/nologin").ok()
        assert "ends" in refused
    finally:
        cluster.on("login", "rm", "-f", "/run/nologin")
        running.kill()


def test_sessions_by_ssh_are_told(cluster: LocalCluster, user: str) -> None:
    """Their processes are the user's, and in the jail: root outside may not look into them."""
    told = {name: ssh(cluster, name) for name in ("root", user)}
    homes = (cluster.root / "root", cluster.root / "home" / user)
    try:
        for home in homes:
            cluster.wait_until("the session runs", (home / "session.ssh").exists)
        cluster.on("login", LEAVE, "60").ok()
        for name, running in told.items():
            said = running.communicate(timeout=60)[0]
            assert said.count(TOLD) == 1, f"{name}: {said}"
    finally:
        cluster.on("login", "rm", "-f", "/run/nologin")
        for home in homes:
            (home / "session.ssh").unlink(missing_ok=True)
        for running in told.values():
            running.kill()


def ssh(cluster: LocalCluster, name: str) -> subprocess.Popen[str]:
    """A session of some seconds by ssh, with a terminal."""
    key = cluster.status.ssh_key.with_suffix(".pub").read_text()
    line = 'umask 077; mkdir -p ~/.ssh; echo "$0" >~/.ssh/authorized_keys'
    cluster.jail("sh", "-c", line, key, user=name).ok()
    options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes")
    said = [part for option in options for part in ("-o", option)]
    where = ("-i", str(cluster.status.ssh_key), "-p", str(cluster.status.ssh_port), f"{name}@127.0.0.1")
    return subprocess.Popen(
        ["ssh", "-tt", *said, *where, "touch ~/session.ssh; sleep 8"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("kind", ["file", "fifo"])
def test_what_is_no_terminal_is_not_written_to(cluster: LocalCluster, user: str, kind: str) -> None:
    """A session of a user's own design: root outside opens what its standard input is."""
    home = cluster.root / "home" / user
    make = "rm -rf ~/held ~/got; " + ("mkfifo ~/held" if kind == "fifo" else "echo mine >~/held")
    reads = "exec <>~/held" if kind == "fifo" else "exec <~/held"
    got = "timeout 4 cat >~/got" if kind == "fifo" else "sleep 4; cat ~/held >~/got"
    running = session(cluster, user, f"{make}; {reads}; touch ~/session.{kind}; {got}; true")
    try:
        cluster.wait_until("the session runs", (home / f"session.{kind}").exists)
        cluster.on("login", LEAVE, "3", timeout_s=60).ok()
        running.wait(60)
        assert (home / "got").read_text() == ("" if kind == "fifo" else "mine\n")
    finally:
        cluster.on("login", "rm", "-f", "/run/nologin")
        (home / f"session.{kind}").unlink(missing_ok=True)
        running.kill()
