# SPDX-License-Identifier: Apache-2.0
"""Imitates the Docker API in memory, as far as `cellblock.cluster` calls it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from socket import SHUT_WR
from socket import socketpair as make_pair
from typing import Any

from docker.errors import APIError, ImageNotFound, NotFound


@dataclass
class FakeContainer:
    """A container: what it was created with, and its state."""

    engine: FakeEngine
    name: str
    labels: dict[str, str]
    image: str
    options: dict[str, Any]
    status: str = "created"

    @property
    def attrs(self) -> dict[str, Any]:
        return {"Config": {"Image": self.image}}

    def start(self) -> None:
        self.engine.on_start(self)
        if self.status == "created":
            self.status = "running"

    def stop(self, timeout: int) -> None:
        self.status = "exited"

    def remove(self, force: bool, v: bool) -> None:
        self.engine.made.remove(self)

    def logs(self, tail: int) -> bytes:
        return f"last words of {self.name}\n".encode()


@dataclass
class FakeNetwork:
    """A network by name."""

    engine: FakeEngine
    name: str

    @property
    def attrs(self) -> dict[str, Any]:
        return {"IPAM": {"Config": [{"Subnet": "10.9.8.0/24", "Gateway": "10.9.8.1"}]}}

    def reload(self) -> None:
        pass

    def remove(self) -> None:
        self.engine.nets.remove(self)


@dataclass
class FakeEngine:
    """Stands for a `docker.DockerClient`. `on_start` and `on_exec` are a test's to replace."""

    image_ids: dict[str, str] = field(default_factory=dict)
    made: list[FakeContainer] = field(default_factory=list)
    nets: list[FakeNetwork] = field(default_factory=list)
    ran: list[tuple[int, str]] = field(default_factory=list)
    connections: list[Any] = field(default_factory=list)
    on_start: Callable[[FakeContainer], None] = lambda container: None
    on_exec: Callable[[FakeContainer, list[str]], tuple[int, str]] = lambda container, command: (0, "")

    @property
    def containers(self) -> Any:
        return _Containers(self)

    @property
    def networks(self) -> Any:
        return _Networks(self)

    @property
    def images(self) -> Any:
        return _Images(self)

    @property
    def api(self) -> Any:
        return _Api(self)

    def addresses(self) -> dict[str, str | None]:
        """What address was asked for, for each container."""
        asked = {one.name: one.options["networking_config"] for one in self.made}
        return {name: endpoint["ipv4_address"] for name, one in asked.items() for endpoint in one.values()}

    def hardware_addresses(self) -> dict[str, str | None]:
        """The same of its Ethernet address."""
        asked = {one.name: one.options["networking_config"] for one in self.made}
        return {name: endpoint.get("MacAddress") for name, one in asked.items() for endpoint in one.values()}

    def workers(self, cluster: str) -> list[FakeContainer]:
        return [container for container in self.made if container.name.startswith(f"{cluster}-worker-")]


@dataclass
class _Api:
    """The number of an execution is its place in `engine.ran`."""

    engine: FakeEngine

    def create_endpoint_config(self, **given: Any) -> dict[str, Any]:
        return given

    def exec_create(self, name: str, command: list[str], *, stdin: bool) -> dict[str, str]:
        container = self.engine.containers.get(name)
        # What comes before the command waits for a line.
        self.engine.ran.append(self.engine.on_exec(container, command[command.index("sh", 1) + 1 :]))
        return {"Id": str(len(self.engine.ran) - 1)}

    def exec_start(self, number: str, *, socket: bool) -> Any:
        output = self.engine.ran[int(number)][1].encode()
        ours, theirs = make_pair()
        theirs.sendall(struct.pack(">BxxxL", 1, len(output)) + output)
        theirs.shutdown(SHUT_WR)
        self.engine.connections.append(theirs)
        return ours

    def exec_inspect(self, number: str) -> dict[str, int]:
        return {"ExitCode": self.engine.ran[int(number)][0]}


@dataclass
class _Containers:
    engine: FakeEngine

    def create(self, image: str, *, name: str, labels: dict[str, str], **options: Any) -> FakeContainer:
        if any(container.name == name for container in self.engine.made):
            raise APIError(f"the name {name} is in use")
        container = FakeContainer(self.engine, name, labels, image, options)
        self.engine.made.append(container)
        return container

    def list(self, *, all: bool, filters: dict[str, list[str]], ignore_removed: bool) -> list[FakeContainer]:
        wanted = filters["label"][0].split("=", 1)
        return [one for one in self.engine.made if one.labels.get(wanted[0]) == wanted[1]]

    def get(self, name: str) -> FakeContainer:
        for container in self.engine.made:
            if container.name == name:
                return container
        raise NotFound(f"no container {name}")


@dataclass
class _Networks:
    engine: FakeEngine

    def create(self, name: str, **options: Any) -> FakeNetwork:
        self.engine.nets.append(FakeNetwork(self.engine, name))
        return self.engine.nets[-1]

    def get(self, name: str) -> FakeNetwork:
        for network in self.engine.nets:
            if network.name == name:
                return network
        raise NotFound(f"no network {name}")

    def list(self, *, names: list[str]) -> list[FakeNetwork]:
        # As the API: a name matches when it contains the filter.
        return [network for network in self.engine.nets if any(name in network.name for name in names)]


@dataclass
class _Images:
    engine: FakeEngine

    def get(self, reference: str) -> Any:
        if reference not in self.engine.image_ids:
            raise ImageNotFound(f"no image {reference}")
        return type("Image", (), {"id": self.engine.image_ids[reference]})()
