# SPDX-License-Identifier: Apache-2.0
"""Asks a cluster's REST API, as its users do."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellblock.cluster.tokens import make_token
from cellblock.events import Events
from tests.integration.local_cluster import LocalCluster

# The newest version of the API in each release.
VERSIONS = {"22.05": "v0.0.38", "24.11": "v0.0.42", "26.05": "v0.0.45"}
USER = "cellblock"


@dataclass(frozen=True)
class Answer:
    """Of slurmrestd; `document` is empty for what is no JSON."""

    status: int
    document: dict[str, Any]

    @property
    def refused(self) -> bool:
        """22.05 answers 200 to some requests that slurmdbd refused, with errors."""
        return self.status >= 400 or bool(self.document.get("errors"))


@dataclass(frozen=True)
class Rest:
    """A cluster's REST API."""

    cluster: LocalCluster

    @property
    def file(self) -> Path:
        """The cluster file."""
        assert self.cluster.request.file
        return self.cluster.request.file

    @property
    def name(self) -> str:
        """The cluster's."""
        return self.cluster.status.name

    @property
    def url(self) -> str:
        """Where slurmrestd is."""
        return self.cluster.status.rest_urls[0]

    @property
    def version(self) -> str:
        """Of the API."""
        return VERSIONS[self.cluster.status.release]

    def token(self, user: str = USER, lifetime: str = "1h") -> str:
        """A token of `user`."""
        return make_token(self.name, user, lifetime, Events()).token

    def ask(
        self,
        path: str,
        token: str = "",
        *,
        user: str = USER,
        body: Any = None,
        method: str | None = None,
        kind: str = "application/json",
    ) -> Answer:
        """Ask for `path`, which is below /slurm/VERSION/, or whole; `body` bytes, or what becomes JSON."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"X-SLURM-USER-NAME": user, "X-SLURM-USER-TOKEN": token, "Content-Type": kind}
        address = self.url + (path if path.startswith("/") else f"/slurm/{self.version}/{path}")
        asked = urllib.request.Request(address, data, headers if token else {}, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        try:
            document = json.loads(text)
        except ValueError:
            document = {}
        return Answer(status, document)

    def submit(self, token: str, script: str, *, user: str = USER, **more: Any) -> Answer:
        """Submit a job; `environment` is a list, as releases after 22.05 have it."""
        environment = more.pop("environment", ["PATH=/usr/bin:/bin"])
        if self.version == VERSIONS["22.05"]:
            environment = dict(line.split("=", 1) for line in environment)
        job = {"name": "by-rest", "current_working_directory": "/", "environment": environment, **more}
        job = {"standard_output": "/dev/null", "standard_error": "/dev/null", **job}
        return self.ask("job/submit", token, user=user, body={"script": f"#!/bin/sh\n{script}\n", "job": job})
