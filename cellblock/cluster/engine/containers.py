# SPDX-License-Identifier: Apache-2.0
"""Creates, finds, starts, stops and removes the containers of a cluster, and executes commands in them.

container_specs.py decides what each container is to be.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, cast

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container as Running
from docker.types import LogConfig, Ulimit
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_fixed

from cellblock.cluster.definition.model import EngineName, NodeStatus
from cellblock.cluster.definition.names import CONTROLLERS, name_option
from cellblock.cluster.engine.addresses import (
    free_addresses,
    hardware_address,
    hosts_for,
    hosts_label,
    known_address,
    sysctls_for,
)
from cellblock.cluster.engine.container_exec import run_inside
from cellblock.cluster.engine.container_specs import (
    LABEL_ADDRESS,
    LABEL_CLUSTER,
    LABEL_HOSTS,
    LABEL_ROLE,
    Container,
    container_name,
    network_name,
)
from cellblock.cluster.engine.name_servers import end_left_over
from cellblock.cluster.facts import state
from cellblock.errors import CellblockError

# Lines of a container's log shown when it fails.
_LOG_LINES = 10
# What the engine keeps of a container's output: a user's requests are lines there, on the volume's disk.
_MOST_LOG = "64m"
# Seconds for a container to end by itself when the cluster stops. Slurm's daemons and MariaDB take one or
# two, on a busy machine more; what slurmctld has not written by then is lost.
_STOP_S = 5
_STOP_KEEPERS_S = 60
_KEEPERS = ("controller", "accounting", "database")
# Between two runs of a command that is to succeed at last.
_POLL_S = 0.2
# sinfo does not show a node that is in no partition.
_NODE_NAMES = (
    "shown=$(scontrol --oneliner show nodes) && echo \"$shown\" | sed -n 's/^NodeName=\\([^ ]*\\).*/\\1/p'"
)
# Requests to the engine at once: it serialises most of its work.
_AT_ONCE = 4


def create(
    client: docker.DockerClient, cluster: str, engine: EngineName, containers: Iterable[Container]
) -> None:
    """Make the cluster's network and start its containers, side by side: each waits for what it needs.

    Raises docker.errors.DockerException; what was made until then is left for `remove`.
    """
    if engine == "podman":
        end_left_over(client)
    client.networks.create(network_name(cluster), driver="bridge", labels={LABEL_CLUSTER: cluster})
    free = free_addresses(client, cluster, engine, find(client, cluster))
    made = [(container, next(free, "")) for container in containers]
    places = {container.hostname: place for container, place in made}
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        list(pool.map(lambda one: _start(client, cluster, one[0], places), made))


def find(client: docker.DockerClient, cluster: str) -> list[Running]:
    """The cluster's containers, whatever their state, by name."""
    found = client.containers.list(
        all=True, filters={"label": [f"{LABEL_CLUSTER}={cluster}"]}, ignore_removed=True
    )
    return sorted(found, key=lambda container: container.name or "")


def remove(client: docker.DockerClient, cluster: str) -> bool:
    """Remove containers and network of the cluster; returns whether there were any."""
    found: list[Running] = []
    try:
        found = find(client, cluster)
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            list(pool.map(_remove, found))
        for network in client.networks.list(names=[network_name(cluster)]):
            # The API's filter matches parts of names, too.
            if network.name == network_name(cluster):
                network.remove()
                return True
    except (DockerException, OSError) as error:
        raise CellblockError(
            f"cluster {cluster}: cannot be removed: {error}",
            hint=f"try `build.py down{name_option(cluster)}` again",
        ) from error
    return bool(found)


def by_host(client: docker.DockerClient, cluster: str) -> dict[str, Running]:
    """The cluster's containers, whatever their state, by host name."""
    prefix = container_name(cluster, "")
    return {(one.name or "").removeprefix(prefix): one for one in find(client, cluster)}


def alive(client: docker.DockerClient, cluster: str) -> set[str]:
    """Host names of the cluster's containers that run."""
    return {host for host, one in by_host(client, cluster).items() if one.status == "running"}


def controller(client: docker.DockerClient, cluster: str) -> str | None:
    """The first host of slurmctld whose container runs; None when none does."""
    there = alive(client, cluster)
    return next((host for host in CONTROLLERS if host in there), None)


def stop_one(client: docker.DockerClient, cluster: str, hostname: str) -> None:
    """End what runs in a container of the cluster, and keep the container. Raises CellblockError."""
    with _of_engine(cluster, hostname, "stopped"):
        _stop(client.containers.get(container_name(cluster, hostname)), _STOP_KEEPERS_S)


def start_one(client: docker.DockerClient, cluster: str, hostname: str) -> None:
    """Start a container of the cluster again that `stop_one` ended. Raises CellblockError."""
    with _of_engine(cluster, hostname, "started"):
        client.containers.get(container_name(cluster, hostname)).start()


@contextmanager
def _of_engine(cluster: str, hostname: str, what: str) -> Iterator[None]:
    """The engine's errors as one that names the container and says what to do."""
    try:
        yield
    except (DockerException, OSError) as error:
        raise CellblockError(
            f"container {container_name(cluster, hostname)} cannot be {what}: {error}",
            hint=f"{state.same_up(cluster)} starts what is missing",
        ) from error


def replace(
    client: docker.DockerClient, cluster: str, engine: EngineName, container: Container, place: str = ""
) -> None:
    """Start a container in place of the one with its name, if there is one, at that one's address.

    `place` is the address where there is none any more. Daemons and commands that run have looked up the
    address once. Raises docker.errors.DockerException.
    """
    with suppress(NotFound):
        old = client.containers.get(container.name)
        place = old.labels.get(LABEL_ADDRESS, "") or place
        _remove(old)
    others = by_host(client, cluster)
    place = place or known_address(container.hostname, others.values())
    place = place or next(free_addresses(client, cluster, engine, others.values()), "")
    places = {host: one.labels.get(LABEL_ADDRESS, "") for host, one in others.items()}
    _start(client, cluster, container, {**places, container.hostname: place})


def remove_one(client: docker.DockerClient, cluster: str, hostname: str) -> None:
    """End and remove the container with `hostname`, if it is there. Raises docker.errors.DockerException."""
    _remove_if_there(client, container_name(cluster, hostname))


def restart(client: docker.DockerClient, cluster: str, hostname: str) -> None:
    """End a container's daemon, and start it again in the same container."""
    client.containers.get(container_name(cluster, hostname)).restart(timeout=_STOP_KEEPERS_S)


def execute(client: docker.DockerClient, cluster: str, hostname: str, command: Sequence[str]) -> str:
    """Run `command` in a container of the cluster and return what it printed.

    What is for the first controller runs on the second when the first is gone.
    Raises CellblockError with its output when it fails.
    """
    code, output = _execute(client, cluster, hostname, command)
    if code:
        raise _failed(cluster, hostname, command, code, output)
    return output


def _failed(cluster: str, hostname: str, command: Sequence[str], code: int, output: str) -> CellblockError:
    return CellblockError(
        f"`{' '.join(command)}` on {hostname} ended with status {code}: {output.strip()[-2000:]}",
        hint=f"see the log of container {container_name(cluster, hostname)}",
    )


def succeeds(client: docker.DockerClient, cluster: str, hostname: str, command: Sequence[str]) -> bool:
    """Whether `command` in a container of the cluster can be run and ends with status 0."""
    try:
        return _execute(client, cluster, hostname, command)[0] == 0
    except CellblockError:
        return False


def succeeds_within(
    client: docker.DockerClient, cluster: str, hostname: str, command: Sequence[str], within_s: float
) -> bool:
    """Whether `command`, as `succeeds` runs it, does within so many seconds: it is run again until then."""
    deadline = time.monotonic() + within_s
    while not succeeds(client, cluster, hostname, command):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def nodes(client: docker.DockerClient, cluster: str, only: Sequence[str] = ()) -> tuple[NodeStatus, ...]:
    """The nodes that sinfo shows, or those of `only`; none while slurmctld does not answer."""
    chosen = [f"--nodes={','.join(only)}"] if only else []
    try:
        code, output = _execute(client, cluster, "controller", ["sinfo", "-h", "-N", *chosen, "-o", "%N %t"])
    except CellblockError:
        return ()
    if code:
        return ()
    # sinfo has a line for each partition that a node is in.
    pairs = {(words[0], words[1]) for line in output.splitlines() if len(words := line.split()) == 2}
    return tuple(NodeStatus(node, what) for node, what in sorted(pairs))


@dataclass(frozen=True)
class NodeRecord:
    """What slurmctld knows of a node: where it is, and when the slurmd that registered last started.

    `slurmd_start` is in seconds since the epoch; None when slurmctld does not say.
    """

    address: str
    slurmd_start: int | None


def node_records(client: docker.DockerClient, cluster: str, nodes: Sequence[str]) -> dict[str, NodeRecord]:
    """Those of `nodes` that slurmctld knows, by name. Raises CellblockError while it does not answer."""
    command = ["env", "SLURM_TIME_FORMAT=%s", "scontrol", "--oneliner", "show", "node", ",".join(nodes)]
    code, output = _execute(client, cluster, "controller", command)
    records = {}
    for line in output.splitlines():
        fields = dict(field.split("=", 1) for field in line.split() if "=" in field)
        start = fields.get("SlurmdStartTime", "")
        if "NodeName" in fields:
            records[fields["NodeName"]] = NodeRecord(
                fields.get("NodeAddr", ""), int(start) if start.isdigit() else None
            )
    # It fails, too, when it does not know one of them.
    if code and not records and "not found" not in output:
        raise _failed(cluster, "controller", command, code, output)
    return records


def node_names(client: docker.DockerClient, cluster: str) -> set[str]:
    """All nodes that slurmctld knows, in a partition or in none. Raises CellblockError without an answer."""
    # One name a line is a fraction of what scontrol prints of a node.
    command = ["sh", "-c", _NODE_NAMES]
    return set(execute(client, cluster, "controller", command).split())


def address(container: Running, cluster: str) -> str:
    """The IP address of a container in the cluster's network; empty when it has none."""
    networks = container.attrs.get("NetworkSettings", {}).get("Networks", {})
    return str(networks.get(network_name(cluster), {}).get("IPAddress") or "")


def last_lines(client: docker.DockerClient, cluster: str) -> str:
    """The last lines of those containers that ended, or of all when none did; each after a newline."""
    try:
        found = find(client, cluster)
        ended = [container for container in found if container.status != "running"]
        parts = []
        for container in ended or found:
            lines = container.logs(tail=_LOG_LINES).decode("utf-8", "replace").splitlines()
            parts += [f"\n  {container.name} | {line}" for line in lines]
    except (DockerException, OSError):
        return ""  # the failure that asks for them is worth more than this one
    return "".join(parts)


def _start(
    client: docker.DockerClient, cluster: str, container: Container, places: Mapping[str, str]
) -> None:
    """Start a container; `places` has the addresses of the cluster's hosts, its own among them."""
    network = network_name(cluster)
    place, hosts = places[container.hostname], hosts_for(container.hostname, places)
    cgroup: Literal["private"] | None = "private" if container.private_cgroup else None
    endpoint = client.api.create_endpoint_config(aliases=[container.hostname], ipv4_address=place or None)
    if place:
        endpoint["MacAddress"] = hardware_address(place)
    client.containers.create(
        container.image,
        name=container.name,
        hostname=container.hostname,
        environment=dict(container.environment),
        volumes={
            mount.source: {"bind": mount.target, "mode": "rw" if mount.writable else "ro"}
            for mount in container.mounts
        },
        cap_drop=["ALL"],
        cap_add=list(container.cap_add),
        devices=[f"{path}:{path}:rw" for path in container.devices],
        security_opt=list(container.security_opt),
        cgroupns=cgroup,
        pids_limit=container.pids_limit,
        ulimits=[Ulimit(name=limit.name, soft=limit.value, hard=limit.value) for limit in container.limits],
        labels={
            LABEL_CLUSTER: cluster,
            LABEL_ROLE: container.role,
            LABEL_ADDRESS: place,
            LABEL_HOSTS: hosts_label(hosts),
        },
        network=network,
        extra_hosts=hosts,
        # docker-py's type of it knows no MacAddress.
        networking_config={network: cast(Any, endpoint)},
        ports=dict(container.ports.items()),
        user=container.user,
        read_only=container.read_only,
        tmpfs=dict(container.tmpfs),
        sysctls={**container.sysctls, **sysctls_for(hosts)},
        log_config=LogConfig(type=LogConfig.types.JSON, config={"max-size": _MOST_LOG}),
    ).start()


# podman answers with an error for a container that it stopped while a command that was executed in it counts
# as running: it learns of that command's end a moment later. And for one that ends while it is removed.
_again = retry(
    retry=retry_if_exception(lambda error: isinstance(error, APIError) and error.is_server_error()),
    stop=stop_after_attempt(3),
    wait=wait_fixed(1),
    reraise=True,
)


@contextmanager
def thrown_away(client: docker.DockerClient, name: str) -> Iterator[None]:
    """Remove the container `name` after the block, and before it one that a killed command left."""
    _throw_away(client, name)
    try:
        yield
    finally:
        _throw_away(client, name)


@_again
def _throw_away(client: docker.DockerClient, name: str) -> None:
    with suppress(NotFound):
        client.containers.get(name).remove(force=True, v=True)


def _remove_if_there(client: docker.DockerClient, name: str) -> None:
    with suppress(NotFound):
        _remove(client.containers.get(name))


@_again
def _stop(container: Running, patience_s: int) -> None:
    """End what runs in a container, after so many seconds by SIGKILL. Raises DockerException."""
    container.stop(timeout=patience_s)


@_again
def _remove(container: Running) -> None:
    try:
        keeps = container.labels.get(LABEL_ROLE) in _KEEPERS
        container.stop(timeout=_STOP_KEEPERS_S if keeps else _STOP_S)
        container.remove(force=True, v=True)
    except NotFound:
        pass  # gone meanwhile, as wished


def _execute(
    client: docker.DockerClient, cluster: str, hostname: str, command: Sequence[str]
) -> tuple[int, str]:
    try:
        code, output = run_inside(client, container_name(cluster, hostname), command)
    except (DockerException, OSError) as error:
        first, second = CONTROLLERS
        if hostname == first and second in alive(client, cluster):
            return _execute(client, cluster, second, command)
        raise CellblockError(
            f"cannot run `{' '.join(command)}` on {hostname}: {error}",
            hint=f"`build.py status{name_option(cluster)}` shows what runs",
        ) from error
    return code, output.decode("utf-8", "replace")
