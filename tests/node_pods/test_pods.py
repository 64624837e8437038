# SPDX-License-Identifier: Apache-2.0
"""What is read of pods and events, as Kubernetes writes them."""

from __future__ import annotations

from typing import Any

import pytest
from cellblock_node_pods.pods import Pod, last_warning, read_pod

_READY = {"type": "Ready", "status": "True"}


def item(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "gpu-1", "uid": "u1"}, "spec": {"nodeName": "m1"}, "status": status}


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    return {"name": "slurmd", "image": "r.example/worker:1", "state": state, **more}


def test_a_pod_that_is_ready_and_one_that_leaves() -> None:
    assert read_pod(item(phase="Running", conditions=[_READY])) == Pod(
        "gpu-1", "u1", ready=True, machine="m1"
    )
    leaving = item(phase="Running", conditions=[_READY])
    leaving["metadata"]["deletionTimestamp"] = "2026-11-26T15:00:00Z"
    assert read_pod(leaving).leaving


@pytest.mark.parametrize(
    ("status", "trouble", "reason"),
    [
        (
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/2 fit",
                    }
                ],
            },
            "place",
            "Unschedulable: 0/2 fit",
        ),
        (
            {"containerStatuses": [waiting("ErrImagePull", "not found")]},
            "image",
            "ErrImagePull: not found (r.example/worker:1)",
        ),
        (
            {
                "containerStatuses": [
                    waiting("ImagePullBackOff", 'Back-off pulling image "r.example/worker:1"')
                ]
            },
            "image",
            'ImagePullBackOff: Back-off pulling image "r.example/worker:1"',
        ),
        (
            {"containerStatuses": [waiting("CreateContainerConfigError", 'secret "key" not found')]},
            "container",
            'CreateContainerConfigError: secret "key" not found',
        ),
        (
            {
                "containerStatuses": [
                    waiting("CrashLoopBackOff", lastState={"terminated": {"reason": "Error", "exitCode": 1}})
                ]
            },
            "crash",
            "container slurmd ends again and again: Error, exit code 1",
        ),
        (
            {"initContainerStatuses": [waiting("InvalidImageName", "x")]},
            "image",
            "InvalidImageName: x (r.example/worker:1)",
        ),
        ({"containerStatuses": [waiting("ContainerCreating")]}, "", ""),
        ({}, "", ""),
    ],
)
def test_why_a_pod_is_not_ready(status: dict[str, Any], trouble: str, reason: str) -> None:
    pod = read_pod(item(**status))
    assert (pod.ready, pod.trouble, pod.reason) == (False, trouble, reason)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, "Evicted: low on memory"),
        (
            {
                "phase": "Failed",
                "containerStatuses": [{"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}],
            },
            "OOMKilled, exit code 137",
        ),
        ({"phase": "Succeeded"}, "its containers have ended"),
    ],
)
def test_why_a_pod_has_ended(status: dict[str, Any], reason: str) -> None:
    pod = read_pod(item(**status, conditions=[_READY]))
    assert (pod.ended, pod.ready, pod.reason) == (True, False, reason)


def test_the_newest_warning() -> None:
    events = [
        {
            "type": "Warning",
            "reason": "FailedMount",
            "message": "no volume",
            "lastTimestamp": "2026-01-01T00:00:09Z",
        },
        {"type": "Warning", "reason": "Early", "message": "x", "lastTimestamp": "2026-01-01T00:00:01Z"},
        {"type": "Normal", "reason": "Pulling", "message": "x", "lastTimestamp": "2026-01-01T00:00:10Z"},
    ]
    assert last_warning(events) == "FailedMount: no volume"
    assert last_warning([]) == ""
