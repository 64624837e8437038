# SPDX-License-Identifier: Apache-2.0
"""Decides which pods to make and remove, from what Slurm wants and which exist; reconcile_loop.py does it.

A request that a node be up goes this way: no pod -> a pod is made -> it starts -> it is ready. A pod is
given up if it cannot start within the time of its set, or for a reason that waiting does not cure: Slurm is
told, and the pod removed. Slurm then withdraws its request, and may make another later. Pods that Slurm does
not want are removed.

Nothing is done on an old request: a slurmctld that does not answer may still want its nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from cellblock_node_pods.node_requests import NodeRequest, NodeRequests
from cellblock_node_pods.pods import Pod

# Seconds. follow-nodes asks slurmctld each 20 s, and that may take a minute.
STALE_S = 150.0
# For how long a pod may lack its image or container: registries and kubelets fail for a moment, too.
PATIENCE_S = 90.0
# Until a pod that the API refused is tried again.
AGAIN_S = 10.0


@dataclass(frozen=True)
class Create:
    """Make the pod of a node, for the request `token`."""

    node: str
    token: str


@dataclass(frozen=True)
class Remove:
    """Remove a pod, and no other one of its name."""

    pod: Pod


@dataclass(frozen=True)
class GiveUp:
    """Tell Slurm that a request is given up, and remove the pod, if there is one."""

    node: str
    token: str
    reason: str
    pod: Pod | None = None


Action = Create | Remove | GiveUp


@dataclass(frozen=True)
class Refusal:
    """That the API does not take a pod: since when, when last, and why."""

    since: float
    last: float
    reason: str


@dataclass
class Memory:
    """What else is known of each request, by its token. A restart forgets it, which costs time."""

    begun: dict[str, str] = field(default_factory=dict)
    """Token -> uid of the pod that was seen for it."""
    given_up: set[str] = field(default_factory=set)
    troubled: dict[tuple[str, str], tuple[float, str]] = field(default_factory=dict)
    """Pod's uid and kind of trouble -> since when, and what was said first: later it is of the wait alone."""
    refused: dict[str, Refusal] = field(default_factory=dict)

    def note_refusal(self, token: str, reason: str, now: float) -> None:
        """Note that the API did not take the pod of a request."""
        before = self.refused.get(token)
        self.refused[token] = Refusal(before.since if before else now, now, reason)

    def keep_only(self, tokens: Collection[str], uids: Collection[str]) -> None:
        """Forget all other requests and pods."""
        self.begun = {token: uid for token, uid in self.begun.items() if token in tokens}
        self.refused = {token: one for token, one in self.refused.items() if token in tokens}
        self.given_up &= set(tokens)
        self.troubled = {key: one for key, one in self.troubled.items() if key[0] in uids}


def decide(
    requests: NodeRequests, pods: Mapping[str, Pod], memory: Memory, start_s: Mapping[str, float], now: float
) -> list[Action]:
    """What to do now, of pods by their nodes. `start_s` is the time that nodes of each set may take."""
    if not is_fresh(requests):
        return []
    memory.keep_only({one.token for one in requests.nodes.values()}, {one.uid for one in pods.values()})
    actions: list[Action] = []
    for node, request in sorted(requests.nodes.items()):
        if _stands(node, request, requests, memory):
            patience = start_s.get(set_of(node))
            if patience is None:
                reason = f"there is no template for pods of set {set_of(node)}"
                actions.append(GiveUp(node, request.token, reason, pods.get(node)))
            elif action := _fulfil(node, request, pods.get(node), memory, patience, now):
                actions.append(action)
    for node, pod in sorted(pods.items()):
        wanted = requests.nodes.get(node)
        if not pod.leaving and not (wanted and _stands(node, wanted, requests, memory)):
            actions.append(Remove(pod))
    return actions


def without_api(
    requests: NodeRequests, memory: Memory, start_s: Mapping[str, float], now: float, fault: str
) -> list[GiveUp]:
    """What to do while the API does not say which pods there are, for the reason `fault`."""
    if not is_fresh(requests):
        return []
    return [
        GiveUp(
            node, request.token, f"Kubernetes has not answered for {_minutes(now - request.since)}: {fault}"
        )
        for node, request in sorted(requests.nodes.items())
        if request.state == "up"
        and _stands(node, request, requests, memory)
        and now - request.since > start_s.get(set_of(node), 0)
    ]


def is_fresh(requests: NodeRequests) -> bool:
    """Whether slurmctld was asked lately."""
    return requests.age_s is not None and requests.age_s <= STALE_S


def set_of(node: str) -> str:
    """The set of a node, which is called SET-NUMBER."""
    return node.rpartition("-")[0]


def in_transit(requests: NodeRequests, pods: Mapping[str, Pod]) -> bool:
    """Whether something is to change soon."""
    wanted = {node for node, request in requests.nodes.items() if request.state != "down"}
    return wanted != {node for node, pod in pods.items() if pod.ready and not pod.leaving}


def _stands(node: str, request: NodeRequest, requests: NodeRequests, memory: Memory) -> bool:
    return (
        request.state != "down"
        and requests.told.get(node) != request.token
        and request.token not in memory.given_up
    )


def _fulfil(
    node: str, request: NodeRequest, pod: Pod | None, memory: Memory, patience: float, now: float
) -> Action | None:
    begun = memory.begun.get(request.token)
    gone = "its pod is gone: somebody removed it, or its machine"
    if request.state == "serves":
        # Whether it lives is Slurm's to judge, by what slurmd says. A pod that leaves has its jobs' time.
        if pod is None:
            return GiveUp(node, request.token, gone)
        return GiveUp(node, request.token, f"its pod has ended: {pod.reason}", pod) if pod.ended else None
    waited = now - request.since
    if pod is None:
        if begun:
            return GiveUp(node, request.token, gone)
        return _make(node, request, memory, patience, now)
    if pod.leaving and not begun:
        if waited <= patience:
            return None
        where = f" on {pod.machine}" if pod.machine else ""
        return GiveUp(node, request.token, f"its former pod has not ended{where} for {_minutes(waited)}")
    memory.begun[request.token] = pod.uid
    if pod.leaving:
        return None
    if pod.ended:
        return GiveUp(node, request.token, f"its pod has ended: {pod.reason}", pod)
    if pod.ready:
        return None
    return _starting(node, request, pod, memory, patience, now)


def _make(node: str, request: NodeRequest, memory: Memory, patience: float, now: float) -> Action | None:
    refused = memory.refused.get(request.token)
    if refused and now - refused.since >= min(PATIENCE_S, patience):
        return GiveUp(node, request.token, f"Kubernetes refuses its pod: {refused.reason}")
    if now - request.since > patience:
        return GiveUp(node, request.token, f"no pod could be made within {_minutes(patience)}")
    return None if refused and now - refused.last < AGAIN_S else Create(node, request.token)


def _starting(
    node: str, request: NodeRequest, pod: Pod, memory: Memory, patience: float, now: float
) -> Action | None:
    if pod.trouble in ("image", "container", "crash"):
        since, reason = memory.troubled.setdefault((pod.uid, pod.trouble), (now, pod.reason))
        if now - since >= min(PATIENCE_S, patience):
            return GiveUp(node, request.token, reason, pod)
    if now - request.since <= patience:
        return None
    why = f": {pod.reason}" if pod.reason else ""
    return GiveUp(node, request.token, f"its pod did not start within {_minutes(patience)}{why}", pod)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
