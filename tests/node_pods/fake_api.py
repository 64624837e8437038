# SPDX-License-Identifier: Apache-2.0
"""Runs an imitation of Kubernetes' API server over real HTTP, as far as images/node-pods uses it.

It fails in the ways that a test asks for.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.node_pods.http_server import serving

Fault = Callable[[str, str], tuple[int, str] | None]
"""Method and path -> status and message of an error, or None; it may sleep."""


@dataclass
class FakeApi:
    """Pods by their names. Whoever deletes one is done at once."""

    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    fault: Fault = lambda method, path: None
    asked: list[str] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    page: int = 500
    url: str = ""

    def has(self, name: str, **status: Any) -> dict[str, Any]:
        """A pod of that name, made by somebody; returns it."""
        label = {"app.kubernetes.io/instance": "test", "cellblock.org/on-demand": "yes"}
        meta = {"name": name, "uid": str(uuid.uuid4()), "labels": label}
        self.pods[name] = {"metadata": meta, "spec": {}, "status": status}
        return self.pods[name]

    def becomes_ready(self, name: str) -> None:
        """The pod of that name is ready."""
        self.pods[name]["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and object."""
        where = urlsplit(path)
        query = {key: values[0] for key, values in parse_qs(where.query).items()}
        assert where.path.startswith("/api/v1/namespaces/slurm/"), path
        kind, _, name = where.path.removeprefix("/api/v1/namespaces/slurm/").partition("/")
        if kind == "events":
            return 200, {"items": self.events}
        if method == "GET":
            wanted = dict(each.split("=") for each in query["labelSelector"].split(","))
            items = [one for one in self.pods.values() if wanted.items() <= one["metadata"]["labels"].items()]
            begin = int(query.get("continue", "0"))
            more = {"continue": str(begin + self.page)} if begin + self.page < len(items) else {}
            return 200, {"items": items[begin : begin + self.page], "metadata": more}
        if method == "POST":
            name = body["metadata"]["name"]
            if name in self.pods:
                return 409, {"message": f'pods "{name}" already exists'}
            self.pods[name] = {
                **body,
                "metadata": {**body["metadata"], "uid": str(uuid.uuid4())},
                "status": {},
            }
            return 201, self.pods[name]
        if name not in self.pods:
            return 404, {"message": f'pods "{name}" not found'}
        if body["preconditions"]["uid"] != self.pods[name]["metadata"]["uid"]:
            return 409, {"message": "the UID in the precondition does not match"}
        return 200, self.pods.pop(name)


@contextmanager
def running(api: FakeApi) -> Iterator[FakeApi]:
    """`api`, answering at its `url`."""

    def answer(method: str, path: str, headers: Message, body: bytes) -> tuple[int, bytes]:
        given = json.loads(body or "{}")
        api.asked.append(f"{method} {urlsplit(path).path.rpartition('/slurm/')[2]}")
        assert headers["Authorization"] == "Bearer secret"
        failed = api.fault(method, path)
        status, made = (failed[0], {"message": failed[1]}) if failed else api.answer(method, path, given)
        return status, json.dumps(made).encode()

    with serving(answer) as api.url:
        yield api


def silent_after(seconds: float) -> Fault:
    """Nothing is said for so long."""

    def fault(method: str, path: str) -> None:
        time.sleep(seconds)

    return fault
