# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes of two nodes for the tests here; where there is none, they are skipped and say why."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

PROGRAM = "CELLBLOCK_TEST_KUBERNETES"
"""Variable: the program that starts a Kubernetes, by `PROGRAM up DIR NODES` and `PROGRAM down DIR`.

`up` prints the path of the KUBECONFIG and leaves kubectl in DIR/bin. The nodes are this host: a hostPath is
the same on all, and HOST is one of its addresses, which pods reach.
"""

HOST = "10.96.0.10"

_TIMEOUT_S = 180


@dataclass(frozen=True)
class Kubernetes:
    """A running cluster with the nodes node-1 and node-2."""

    folder: Path
    configuration: str

    def __call__(self, *arguments: str, given: str | None = None) -> str:
        """What kubectl prints. Fails the test when kubectl does."""
        done = subprocess.run(
            [str(self.folder / "bin/kubectl"), f"--kubeconfig={self.configuration}", *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def get(self, *arguments: str) -> Any:
        """The objects that `kubectl get` finds."""
        return json.loads(self("get", "--output=json", *arguments))

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Create or change objects."""
        self("apply", "--filename=-", given=yaml.safe_dump_all(manifests))

    def end_of(self, job: str, namespace: str) -> tuple[bool, str, str]:
        """Waits for a Job: whether it succeeded, the log of its last pod, and that pod's node."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            status = self.get(f"job/{job}", f"--namespace={namespace}")["status"]
            ended = [each["type"] for each in status.get("conditions", ()) if each["status"] == "True"]
            pods = self.get("pods", f"--namespace={namespace}", f"--selector=job-name={job}")["items"]
            if ended or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        if not ended:
            events = self("get", "events", f"--namespace={namespace}")
            pytest.fail(f"job {job} has not ended after {_TIMEOUT_S} s:\n{status}\n{events}")
        pod = max(pods, key=lambda each: each["metadata"]["creationTimestamp"])
        log = self("logs", f"--namespace={namespace}", pod["metadata"]["name"])
        return "Complete" in ended, log, pod["spec"]["nodeName"]


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    program = os.environ.get(PROGRAM)
    if not program:
        pytest.skip(f"{PROGRAM} names no program that starts a Kubernetes: see {Path(__file__).name}")
    if os.geteuid() != 0:
        pytest.skip("nodes of a Kubernetes need root")
    folder = tmp_path_factory.mktemp("kubernetes")
    try:
        done = subprocess.run([program, "up", str(folder), "2"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{program} up: {done.stderr}"
        yield Kubernetes(folder, done.stdout.split()[-1])
    finally:
        subprocess.run([program, "down", str(folder)], capture_output=True, check=False)
