# SPDX-License-Identifier: Apache-2.0
"""Chooses addresses for a cluster's containers, and the lines of each container's /etc/hosts.

The name server of podman and Docker does not know a container that ended. Slurm asks ten times, a second
apart, for an unknown name: a slurmctld that started without slurmdbd's container took its first job after 35
to 60 s.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterable, Iterator, Mapping

import docker
from docker.models.containers import Container as Running

from cellblock.cluster.definition.model import EngineName
from cellblock.cluster.definition.names import CONTROLLERS
from cellblock.cluster.engine.container_specs import LABEL_ADDRESS, LABEL_HOSTS, network_name

# Of the addresses of a cluster's network, the first that its containers have.
_FIRST_ADDRESS = 16
_ACCOUNTING = "accounting"
# How slurmctld's kernel finds out that slurmdbd's container is gone. It asks three times who has an address:
# a second apart, as the kernel has it, each call takes three seconds, and a start makes four calls. An answer
# is believed for half a minute: calls of that time go to nobody, for 15 s each (TCPTimeout).
_ASK_SOON = {
    "net.ipv4.neigh.eth0.base_reachable_time_ms": "2000",
    "net.ipv4.neigh.eth0.delay_first_probe_time": "1",
    "net.ipv4.neigh.eth0.retrans_time_ms": "200",
}


def free_addresses(
    client: docker.DockerClient, cluster: str, engine: EngineName, there: Iterable[Running]
) -> Iterator[str]:
    """Addresses of the cluster's network for new containers; `there` are those that it has.

    None with docker, which gives addresses only of networks whose range somebody chose. podman by itself
    gives a container another one each time that it starts.
    """
    if engine == "docker":
        return
    network = client.networks.get(network_name(cluster))
    network.reload()
    network_range = network.attrs["IPAM"]["Config"][0]
    used = {network_range.get("Gateway")}
    for one in there:
        used |= {one.labels.get(LABEL_ADDRESS), *_hosts_of(one).values()}
    hosts = ipaddress.ip_network(network_range["Subnet"]).hosts()
    # The first ones podman gives to containers of others in this network.
    yield from (str(one) for one in itertools.islice(hosts, _FIRST_ADDRESS, None) if str(one) not in used)


def known_address(hostname: str, there: Iterable[Running]) -> str:
    """The address that containers have for `hostname` in their /etc/hosts; empty when they have none."""
    return next((place for one in there if (place := _hosts_of(one).get(hostname))), "")


def hosts_for(hostname: str, places: Mapping[str, str]) -> dict[str, str]:
    """What a container has in /etc/hosts: host name -> address, of the addresses of all hosts.

    Of two controllers Slurm asks both, in order. slurmctld asks slurmdbd when it starts.
    """
    both = {host: places[host] for host in CONTROLLERS if places.get(host)}
    hosts = both if len(both) > 1 else {}
    if hostname in CONTROLLERS and places.get(_ACCOUNTING):
        hosts[_ACCOUNTING] = places[_ACCOUNTING]
    return hosts


def hosts_label(hosts: Mapping[str, str]) -> str:
    """A label's value that tells `hosts`."""
    return ",".join(f"{host}={place}" for host, place in hosts.items())


def _hosts_of(container: Running) -> dict[str, str]:
    pairs = str(container.labels.get(LABEL_HOSTS, "")).split(",")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def sysctls_for(hosts: Mapping[str, str]) -> dict[str, str]:
    """What a container with `hosts` is told about its network."""
    return _ASK_SOON if _ACCOUNTING in hosts else {}


def hardware_address(address: str) -> str:
    """The Ethernet address of a container with an IP address of its own, as Docker makes them.

    With another one, those who have looked up the container's before send to nobody for up to a minute.
    """
    return ":".join(f"{byte:02x}" for byte in (0x02, 0x42, *ipaddress.IPv4Address(address).packed))
