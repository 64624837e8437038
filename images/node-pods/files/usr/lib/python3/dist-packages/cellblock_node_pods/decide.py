# SPDX-License-Identifier: Apache-2.0
"""Says what is to be done, from what Slurm wants and what pods there are. It does nothing itself.

A wish that a node be up goes this way: no pod -> one is made -> it starts -> it is ready. A pod that cannot
start within the time of its set, or for a reason that time does not cure, is given up: Slurm is told, and the
pod removed. Slurm then withdraws its wish, and may have another later. Pods that it does not want go.

Nothing is done on a wish that may be old: a slurmctld that does not answer does not want its nodes to go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from cellblock_node_pods.pods import Pod
from cellblock_node_pods.wishes import Wish, Wishes

# Seconds. follow-nodes asks slurmctld each 20 s, and that may take a minute.
STALE_S = 150.0
# For how long a pod may lack its image or container: registries and kubelets fail for a moment, too.
PATIENCE_S = 90.0
# Until a pod that the API refused is tried again.
AGAIN_S = 10.0


@dataclass(frozen=True)
class Create:
    """Make the pod of a node, for the wish `token`."""

    node: str
    token: str


@dataclass(frozen=True)
class Remove:
    """Remove a pod, and no other one of its name."""

    pod: Pod


@dataclass(frozen=True)
class GiveUp:
    """Tell Slurm that a wish is given up, and remove the pod, if there is one."""

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
    """What is known besides of each wish, by its token. After a restart it begins anew, which costs time."""

    begun: dict[str, str] = field(default_factory=dict)
    """Token -> uid of the pod that was seen for it."""
    given_up: set[str] = field(default_factory=set)
    troubled: dict[tuple[str, str], tuple[float, str]] = field(default_factory=dict)
    """Pod's uid and kind of trouble -> since when, and what was said first: later it is of the wait alone."""
    refused: dict[str, Refusal] = field(default_factory=dict)

    def note_refusal(self, token: str, reason: str, now: float) -> None:
        """Note that the API did not take the pod of a wish."""
        before = self.refused.get(token)
        self.refused[token] = Refusal(before.since if before else now, now, reason)

    def keep_only(self, tokens: Collection[str], uids: Collection[str]) -> None:
        """Forget all other wishes and pods."""
        self.begun = {token: uid for token, uid in self.begun.items() if token in tokens}
        self.refused = {token: one for token, one in self.refused.items() if token in tokens}
        self.given_up &= set(tokens)
        self.troubled = {key: one for key, one in self.troubled.items() if key[0] in uids}


def decide(
    wishes: Wishes, pods: Mapping[str, Pod], memory: Memory, start_s: Mapping[str, float], now: float
) -> list[Action]:
    """What to do now, of pods by their nodes. `start_s` is the time that nodes of each set may take."""
    if not is_fresh(wishes):
        return []
    memory.keep_only({one.token for one in wishes.nodes.values()}, {one.uid for one in pods.values()})
    actions: list[Action] = []
    for node, wish in sorted(wishes.nodes.items()):
        if _stands(node, wish, wishes, memory):
            patience = start_s.get(set_of(node))
            if patience is None:
                reason = f"there is no template for pods of set {set_of(node)}"
                actions.append(GiveUp(node, wish.token, reason, pods.get(node)))
            elif action := _fulfil(node, wish, pods.get(node), memory, patience, now):
                actions.append(action)
    for node, pod in sorted(pods.items()):
        wanted = wishes.nodes.get(node)
        if not pod.leaving and not (wanted and _stands(node, wanted, wishes, memory)):
            actions.append(Remove(pod))
    return actions


def without_api(
    wishes: Wishes, memory: Memory, start_s: Mapping[str, float], now: float, fault: str
) -> list[GiveUp]:
    """What to do while the API does not say which pods there are, for the reason `fault`."""
    if not is_fresh(wishes):
        return []
    return [
        GiveUp(node, wish.token, f"Kubernetes has not answered for {_minutes(now - wish.since)}: {fault}")
        for node, wish in sorted(wishes.nodes.items())
        if wish.state == "up"
        and _stands(node, wish, wishes, memory)
        and now - wish.since > start_s.get(set_of(node), 0)
    ]


def is_fresh(wishes: Wishes) -> bool:
    """Whether slurmctld was asked lately."""
    return wishes.age_s is not None and wishes.age_s <= STALE_S


def set_of(node: str) -> str:
    """The set of a node, which is called SET-NUMBER."""
    return node.rpartition("-")[0]


def in_transit(wishes: Wishes, pods: Mapping[str, Pod]) -> bool:
    """Whether something is to change soon."""
    wanted = {node for node, wish in wishes.nodes.items() if wish.state != "down"}
    return wanted != {node for node, pod in pods.items() if pod.ready and not pod.leaving}


def _stands(node: str, wish: Wish, wishes: Wishes, memory: Memory) -> bool:
    return wish.state != "down" and wishes.told.get(node) != wish.token and wish.token not in memory.given_up


def _fulfil(
    node: str, wish: Wish, pod: Pod | None, memory: Memory, patience: float, now: float
) -> Action | None:
    begun = memory.begun.get(wish.token)
    gone = "its pod is gone: somebody removed it, or its machine"
    if wish.state == "serves":
        # Whether it lives is Slurm's to judge, by what slurmd says. A pod that leaves has its jobs' time.
        if pod is None:
            return GiveUp(node, wish.token, gone)
        return GiveUp(node, wish.token, f"its pod has ended: {pod.reason}", pod) if pod.ended else None
    waited = now - wish.since
    if pod is None:
        if begun:
            return GiveUp(node, wish.token, gone)
        return _make(node, wish, memory, patience, now)
    if pod.leaving and not begun:
        if waited <= patience:
            return None
        where = f" on {pod.machine}" if pod.machine else ""
        return GiveUp(node, wish.token, f"its former pod has not ended{where} for {_minutes(waited)}")
    memory.begun[wish.token] = pod.uid
    if pod.leaving:
        return None
    if pod.ended:
        return GiveUp(node, wish.token, f"its pod has ended: {pod.reason}", pod)
    if pod.ready:
        return None
    return _starting(node, wish, pod, memory, patience, now)


def _make(node: str, wish: Wish, memory: Memory, patience: float, now: float) -> Action | None:
    refused = memory.refused.get(wish.token)
    if refused and now - refused.since >= min(PATIENCE_S, patience):
        return GiveUp(node, wish.token, f"Kubernetes refuses its pod: {refused.reason}")
    if now - wish.since > patience:
        return GiveUp(node, wish.token, f"no pod could be made within {_minutes(patience)}")
    return None if refused and now - refused.last < AGAIN_S else Create(node, wish.token)


def _starting(node: str, wish: Wish, pod: Pod, memory: Memory, patience: float, now: float) -> Action | None:
    if pod.trouble in ("image", "container", "crash"):
        since, reason = memory.troubled.setdefault((pod.uid, pod.trouble), (now, pod.reason))
        if now - since >= min(PATIENCE_S, patience):
            return GiveUp(node, wish.token, reason, pod)
    if now - wish.since <= patience:
        return None
    why = f": {pod.reason}" if pod.reason else ""
    return GiveUp(node, wish.token, f"its pod did not start within {_minutes(patience)}{why}", pod)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
