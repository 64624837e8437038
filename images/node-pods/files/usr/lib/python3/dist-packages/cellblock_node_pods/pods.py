# SPDX-License-Identifier: Apache-2.0
"""Reads from Kubernetes' answers what this program needs to know of a pod, such as why it waits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

# Reasons for which a container waits that no time cures, unless somebody changes what it is made from.
_BAD_IMAGE = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
}
_BAD_CONTAINER = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}

Trouble = Literal["", "image", "container", "crash", "place"]


@dataclass(frozen=True)
class Pod:
    """A pod of a node."""

    node: str
    uid: str
    leaving: bool = False
    """Whether somebody asked for its end."""
    ended: bool = False
    """Whether its containers have ended for good: evicted, say."""
    ready: bool = False
    machine: str = ""
    trouble: Trouble = ""
    """What it waits for, while it is not ready: its image, a container that cannot be made or ends again and
    again, or a machine with room for it."""
    reason: str = ""
    """A sentence about that."""


def read_pod(item: Mapping[str, Any]) -> Pod:
    """The pod of an item of a PodList."""
    meta, status = item.get("metadata") or {}, item.get("status") or {}
    conditions = {one.get("type"): one for one in status.get("conditions") or ()}
    ended = status.get("phase") in ("Failed", "Succeeded")
    ready = not ended and conditions.get("Ready", {}).get("status") == "True"
    trouble: Trouble = ""
    reason = ""
    if ended:
        reason = _ended(status)
    elif not ready:
        trouble, reason = _trouble(status, conditions)
    return Pod(
        str(meta.get("name", "")),
        str(meta.get("uid", "")),
        "deletionTimestamp" in meta,
        ended,
        ready,
        str((item.get("spec") or {}).get("nodeName") or ""),
        trouble,
        reason,
    )


def _ended(status: Mapping[str, Any]) -> str:
    said = ": ".join(str(status[key]) for key in ("reason", "message") if status.get(key))
    return said or next(_terminations(_containers(status)), "its containers have ended")


def _trouble(status: Mapping[str, Any], conditions: Mapping[str, Any]) -> tuple[Trouble, str]:
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return "place", _sentence(scheduled.get("reason"), scheduled.get("message"))
    containers = _containers(status)
    for one in containers:
        waiting = (one.get("state") or {}).get("waiting") or {}
        why = waiting.get("reason")
        if why in _BAD_IMAGE:
            text = _sentence(why, waiting.get("message"))
            image = str(one.get("image", ""))
            return "image", text if image in text else f"{text} ({image})"
        if why in _BAD_CONTAINER:
            return "container", _sentence(why, waiting.get("message"))
        if why == "CrashLoopBackOff":
            last = next(_terminations([one]), "")
            name = one.get("name", "")
            return "crash", f"container {name} ends again and again{': ' if last else ''}{last}"
    return "", ""


def _containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _terminations(containers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    return (
        f"{ended.get('reason') or 'ended'}, exit code {ended.get('exitCode')}"
        + (f": {ended['message']}" if ended.get("message") else "")
        for one in containers
        for state in ("state", "lastState")
        if (ended := (one.get(state) or {}).get("terminated"))
    )


def _sentence(reason: object, message: object) -> str:
    return ": ".join(str(one) for one in (reason, message) if one)


def last_warning(events: Iterable[Mapping[str, Any]]) -> str:
    """The newest warning among the items of an EventList; empty when there is none."""
    warnings = [one for one in events if one.get("type") == "Warning"]
    newest = max(
        warnings, key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or ""), default={}
    )
    return _sentence(newest.get("reason"), newest.get("message"))
