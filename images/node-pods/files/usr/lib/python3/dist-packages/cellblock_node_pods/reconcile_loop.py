# SPDX-License-Identifier: Apache-2.0
"""Runs the loop: reads requests and pods, has `decide` compare them, and makes and deletes pods."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cellblock_node_pods.api import Api, Fault, Refused
from cellblock_node_pods.decide import (
    Action,
    Create,
    GiveUp,
    Memory,
    decide,
    in_transit,
    is_fresh,
    set_of,
    without_api,
)
from cellblock_node_pods.node_requests import last_change, read_requests, tell
from cellblock_node_pods.pods import Pod, last_warning, read_pod
from cellblock_node_pods.template import Template, TemplateFault, make_pod, read_templates

# Seconds between rounds: while pods come and go, and else. A request begins a round at once.
_BUSY_S, _IDLE_S = 2.0, 20.0
_LOOK_S = 0.25
# Of the API, in a round; a silent one takes 20 s for each.
_MOST_FAULTS = 3
# After a fault; it doubles.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0


@dataclass
class ReconcileLoop:
    """The program. `selector` are the labels of the pods, `service` what their names are names of."""

    api: Api
    folder: Path
    templates: Path
    selector: str
    service: str
    clock: Callable[[], float] = time.time
    memory: Memory = field(default_factory=Memory)
    fault: str = ""
    """Why the API did not answer the last time."""
    _pause_s: float = _FIRST_PAUSE_S
    _known: dict[str, Template] = field(default_factory=dict)
    _said: str = ""

    def forever(self) -> None:
        """Go on until the process is ended."""
        while True:
            changed = last_change(self.folder)
            end = time.monotonic() + self.once()
            # A fault's pause is kept: whoever wants more does not make the API answer sooner.
            while time.monotonic() < end and (self.fault or last_change(self.folder) == changed):
                time.sleep(_LOOK_S)

    def once(self) -> float:
        """One round; returns the seconds until the next one."""
        requests = read_requests(self.folder, self.clock())
        if not is_fresh(requests):
            return _BUSY_S
        try:
            self._known = read_templates(self.templates)
        except TemplateFault as error:
            # Those of before go on.
            self._say(f"a template cannot be read: {error}")
        start_s = {name: one.start_s for name, one in self._known.items()}
        try:
            pods = {pod.node: pod for pod in map(read_pod, self.api.pods(self.selector))}
            self._do_all(decide(requests, pods, self.memory, start_s, self.clock()))
        except (Fault, Refused) as error:
            self.fault = str(error) or type(error).__name__
            self._say(f"Kubernetes' API: {self.fault}; asking again")
            for given_up in without_api(requests, self.memory, start_s, self.clock(), self.fault):
                self._tell(given_up, given_up.reason)
            pause, self._pause_s = self._pause_s, min(self._pause_s * 2, _LONGEST_PAUSE_S)
            return pause
        if self.fault:
            self._say("Kubernetes' API answers again")
        self.fault, self._pause_s = "", _FIRST_PAUSE_S
        return _BUSY_S if in_transit(requests, pods) else _IDLE_S

    def _do_all(self, actions: list[Action]) -> None:
        """Do what can be done: a pod that the API fails over, time and again, keeps no other waiting."""
        random.shuffle(actions)
        faults: list[Fault] = []
        for action in actions:
            try:
                self._do(action)
            except Fault as error:
                faults.append(error)
                if len(faults) == _MOST_FAULTS:
                    break
        if faults:
            raise faults[0]

    def _do(self, action: Action) -> None:
        if isinstance(action, Create):
            template = self._known[set_of(action.node)]
            try:
                self.api.create(make_pod(template, action.node, self.service))
                self._say(f"{action.node}: pod made")
            except (Fault, Refused) as error:
                taken = isinstance(error, Refused) and error.conflict
                why = "another pod has its name" if taken else str(error)
                self.memory.note_refusal(action.token, why, self.clock())
                self._say(f"{action.node}: {why}")
                if isinstance(error, Fault):
                    raise
        elif isinstance(action, GiveUp):
            self._tell(action, self._whole_reason(action))
            if action.pod and not action.pod.leaving:
                self._remove(action.pod)
        else:
            self._say(f"{action.pod.node}: not wanted; pod removed")
            self._remove(action.pod)

    def _remove(self, pod: Pod) -> None:
        try:
            self.api.delete(pod.node, pod.uid)
        except Refused as error:
            raise Fault(str(error)) from error

    def _whole_reason(self, action: GiveUp) -> str:
        """With what events say where the pod's own status says nothing: volumes, networks."""
        pod = action.pod
        if pod is None or pod.reason:
            return action.reason
        try:
            said = last_warning(self.api.events(pod.uid))
        except (Fault, Refused):
            return action.reason
        return f"{action.reason}: {said}" if said else action.reason

    def _tell(self, action: GiveUp, reason: str) -> None:
        try:
            tell(self.folder, action.node, action.token, reason)
        except OSError as error:
            # The next round tries again, and the pod is there for as long.
            raise SystemExit(f"cellblock-node-pods: {error}; starting again") from error
        self.memory.given_up.add(action.token)
        self._say(f"{action.node}: given up: {reason}")

    def _say(self, text: str) -> None:
        if text != self._said:
            print(f"cellblock-node-pods: {text}", file=sys.stderr, flush=True)
        self._said = text
