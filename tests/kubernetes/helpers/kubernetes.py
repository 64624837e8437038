# SPDX-License-Identifier: Apache-2.0
"""Gives tests a running Kubernetes: the end of a Job, and an address of this machine that pods reach."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from cellblock.bench.harness import real_kubernetes

_TIMEOUT_S = 180


@dataclass(frozen=True)
class Kubernetes(real_kubernetes.Kubernetes):
    """A running Kubernetes, with what tests ask of it."""

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

    def succeeds(self, job: str, namespace: str) -> str:
        """The log of a Job that must succeed."""
        succeeded, log, _ = self.end_of(job, namespace)
        assert succeeded, log
        return log


def machine_address(kubernetes: Kubernetes) -> str:
    """The address of the machine that all nodes are."""
    (node, *_) = kubernetes.get("nodes")["items"]
    (found,) = [one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP"]
    return str(found)
