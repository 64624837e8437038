# SPDX-License-Identifier: Apache-2.0
"""Starting twice, healing, and what the containers and images of a cluster are."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from subprocess import Popen, check_output
from threading import Timer

import pytest

from cellblock.build import BuildRequest, build_images
from cellblock.cluster import ClusterSpec, ClusterStatus, SlurmVariant, start
from cellblock.cluster.engine import containers
from cellblock.cluster.engine.api import connect
from cellblock.cluster.engine.capabilities import capabilities
from cellblock.cluster.engine.container_exec import run_inside
from cellblock.cluster.engine.container_specs import LABEL_CLUSTER, container_name
from cellblock.cluster.engine.name_servers import end_left_over
from cellblock.cluster.up_request import cluster_file
from cellblock.errors import CellblockError
from cellblock.events import Events
from tests.integration.jobs import srun, submit
from tests.integration.local_cluster import LocalCluster, podman

pytestmark = pytest.mark.integration

DAEMONS = ("controller", "worker", "login", "accounting", "database")


def spec(cluster: LocalCluster, **changes: object) -> ClusterSpec:
    variant = cluster.result.build.variant
    options = {key: changes.pop(key) for key in ("workers", "ssh_port") if key in changes}
    given: dict[str, object] = {
        "file": cluster_file(replace(cluster.request, **options)),  # type: ignore[arg-type]
        "variant": SlurmVariant(variant.name, variant.slurm.release, variant.slurm.plugin_dir),
        "images": {role: cluster.result.build.images[role].id for role in DAEMONS},
        "volume": cluster.root.parent,
    }
    return ClusterSpec(**{**given, **changes})  # type: ignore[arg-type]


def again(cluster: LocalCluster) -> ClusterStatus:
    return start(spec(cluster), Events())


def test_starting_a_running_cluster_changes_nothing(cluster: LocalCluster) -> None:
    said: list[str] = []
    events = Events()
    events.subscribe(lambda event: said.append(str(event)))
    status = start(spec(cluster), events)
    assert not status.changed, said
    assert status.ready


def test_a_busy_cluster_is_left_alone(cluster: LocalCluster, user: str) -> None:
    job = submit(cluster, user, "sleep 300", "-N2", "--exclusive", "-o", "/dev/null")
    try:
        cluster.wait_until("the job runs", lambda: cluster.job(job)["JobState"] == "RUNNING")
        status = again(cluster)
        assert not status.changed
        assert status.ready
        assert cluster.job(job)["JobState"] == "RUNNING"
    finally:
        cluster.jail("scancel", job, user=user)


def test_a_port_in_use_ends_nothing_that_runs(cluster: LocalCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(CellblockError, match=f"port {port} .* is in use"):
            start(spec(cluster, ssh_port=port), Events())
    assert not again(cluster).changed


def test_another_variant_under_the_same_name_is_refused(cluster: LocalCluster) -> None:
    release = cluster.status.release
    other = SlurmVariant("another", release, "/nowhere")
    with pytest.raises(CellblockError, match=r"variant .* another was asked for"):
        start(spec(cluster, variant=other), Events())


@pytest.mark.needs_munge
def test_munged_that_is_killed_is_started_again_and_jobs_go_on(cluster: LocalCluster, user: str) -> None:
    sleeper = ("sbatch", "--parsable", "-wworker-2", "-n1", "-D/", "-o/dev/null", "--wrap=sleep 20")
    job = cluster.client(*sleeper, user=user).ok().strip()
    cluster.wait_until("it runs", lambda: cluster.job(job)["JobState"] == "RUNNING")
    # The image has no pkill. One of them is the jail's.
    one = 'tr "\\0" " " <"$p/cmdline" | grep -qE "^(munged|/.*/munged-for-jail) " && kill -KILL "${p#/proc/}"'
    script = f"for p in /proc/[0-9]*; do {one} && echo killed; done 2>/dev/null; true"
    assert len(cluster.on("worker-2", "sh", "-c", script).out.split()) == 2
    cluster.wait_until(
        "worker-2 serves", lambda: srun(cluster, user, "-wworker-2", "-n1", "munge", "--no-input").status == 0
    )
    cluster.wait_until("the job is over", lambda: cluster.job(job)["JobState"] == "COMPLETED")
    assert cluster.job(job)["Restarts"] == "0"


def test_a_container_that_ended_is_started_by_up(cluster: LocalCluster) -> None:
    podman("kill", container_name(cluster.request.name, "worker-2"))
    before = slurmd_start(cluster, "worker-2")
    assert again(cluster).ready
    # slurmctld knows the new slurmd: what it sends to a node that only seems to serve is lost for minutes.
    assert slurmd_start(cluster, "worker-2") > before


def slurmd_start(cluster: LocalCluster, node: str) -> int:
    command = ("env", "SLURM_TIME_FORMAT=%s", "scontrol", "--oneliner", "show", "node", node)
    shown = cluster.on("controller", *command).ok()
    return int(shown.partition(" SlurmdStartTime=")[2].split()[0])


def test_a_cluster_is_removed_though_podman_learns_late_that_a_command_in_it_ended(
    cluster: LocalCluster,
) -> None:
    name = "late"
    with connect("podman") as client:
        container = client.containers.create(
            cluster.result.build.images["worker"].id,
            ["sleep", "infinity"],
            entrypoint=[],
            labels={LABEL_CLUSTER: name},
            name=container_name(name, "worker-1"),
            network_mode="none",
        )
        container.start()
        executed = client.api.exec_create(container.id, ["sleep", "infinity"])["Id"]
        client.api.exec_start(executed, detach=True)
        monitor = int(check_output(["pgrep", "-f", f"conmon.*{executed}"], text=True))
        os.kill(monitor, signal.SIGSTOP)
        # After the engine's patience with one request, 15 s.
        later = Timer(18, os.kill, (monitor, signal.SIGCONT))
        later.start()
        try:
            assert containers.remove(client, name)
            assert containers.find(client, name) == []
        finally:
            later.join()
            containers.remove(client, name)


def test_a_name_server_of_a_network_that_is_gone_is_ended(cluster: LocalCluster) -> None:
    """Its address is given to a new network, whose containers would not start."""
    folder = Path("/run/containers/cni/dnsname/cellblock-gone")
    folder.mkdir()
    (folder / "dnsmasq.conf").write_text("port=0\n")
    server = Popen(["/usr/sbin/dnsmasq", "-k", "-u", "root", f"--conf-file={folder}/dnsmasq.conf"])
    try:
        with connect("podman") as client:
            end_left_over(client)
        server.wait(10)
        assert cluster.on("login", "getent", "hosts", "controller").ok()
    finally:
        server.kill()
        shutil.rmtree(folder)


def test_workers_follow_a_reconfiguration(cluster: LocalCluster, user: str) -> None:
    cluster.reconfigure()
    cluster.wait_until("both serve", lambda: srun(cluster, user, "-N2", "true").status == 0)
    for worker in ("worker-1", "worker-2"):
        assert any(command.startswith("slurmd ") for _, command in cluster.processes(worker))


def test_containers_have_their_capabilities_and_no_others(cluster: LocalCluster) -> None:
    for role, host in (*((name, name) for name in DAEMONS if name != "worker"), ("worker", "worker-1")):
        inspected = json.loads(podman("inspect", container_name(cluster.request.name, host)))[0]
        assert not inspected["HostConfig"]["Privileged"]
        bounding = sorted(name.removeprefix("CAP_") for name in inspected["BoundingCaps"])
        assert bounding == list(capabilities(role))  # type: ignore[arg-type]


# What a daemon image must not hold, and where the jail must not either.
FORBIDDEN = """
ls /etc/munge/munge.key /etc/ssh/ssh_host_* /etc/machine-id /var/lib/dbus/machine-id 2>/dev/null
find /var/lib/apt/lists -type f
find / -xdev -name '*.deb' -type f
"""
FORBIDDEN_IN_DAEMONS = """
for tool in gcc cc make ld; do command -v $tool; done
dpkg-query -W -f '${Package}\\n' | grep -e '-dev$'
find /usr/share/man /usr/share/info -type f ! -path /usr/share/info/dir 2>/dev/null  # an empty index
find /usr/share/doc -type f ! -name copyright 2>/dev/null
true
"""


def loaded(cluster: LocalCluster, image: str) -> str:
    """The reference of an image in podman's storage; `up` does not bring the jail's there."""
    request = BuildRequest((image,), cluster.result.build.variant.name, load=(image,))
    return build_images(request, Events()).images[image].reference


@pytest.mark.parametrize("image", [*DAEMONS, "jail"])
def test_images_hold_no_secret_and_daemons_no_compiler_or_documentation(
    cluster: LocalCluster, image: str
) -> None:
    reference = loaded(cluster, image)
    script = FORBIDDEN + (FORBIDDEN_IN_DAEMONS if image in DAEMONS else "true")
    assert podman("run", "--rm", "--network=none", "--entrypoint=sh", reference, "-c", script) == ""


@pytest.mark.parametrize("image", [*DAEMONS, "jail"])
def test_slurm_and_munge_have_the_same_ids_everywhere(cluster: LocalCluster, image: str) -> None:
    reference = loaded(cluster, image)
    script = "id -u slurm; id -g slurm; id -u munge; id -g munge"
    out = podman("run", "--rm", "--network=none", "--entrypoint=sh", reference, "-c", script)
    assert out.split() == ["64030", "64030", "65520", "65520"]


def test_what_a_command_prints_at_once_is_not_lost(cluster: LocalCluster) -> None:
    name = container_name(cluster.request.name, "login")
    with connect("podman") as client, ThreadPoolExecutor(16) as pool:
        # Where it was lost, that of every fourth was. Each is 0.2 s of processor time.
        done = list(pool.map(lambda number: run_inside(client, name, ["echo", str(number)]), range(60)))
        assert done == [(0, f"{number}\n".encode()) for number in range(60)]
        assert run_inside(client, name, ["sh", "-c", "echo out; echo error >&2; cat; exit 3"]) == (
            3,
            b"out\nerror\n",
        )
