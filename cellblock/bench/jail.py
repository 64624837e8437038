# SPDX-License-Identifier: Apache-2.0
"""Measures what the jail adds to a step of Slurm: `srun true` with the plugin and without, in turns.

All runs of a round are on one worker of one cluster, inside one allocation, so that only the step is timed.
The worker's plugstack.conf is replaced by rename between them, outside the timed part: Slurm reads it at
each launch, in srun and in slurmstepd. Their order is drawn anew for each round. Each isolation level has
rounds of its own: a job has one level, and steps at two levels in turn would make the job's jail anew each
time.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from cellblock.bench.harness.percentile import percentile, uncertainty
from cellblock.cluster.definition.names import name_option
from cellblock.cluster.engine.api import connect
from cellblock.cluster.engine.container_specs import container_name
from cellblock.cluster.facts import state
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events, Progress

WITHOUT = "without"
"""Name of the runs with an empty plugstack.conf."""

TASKS_AT_ONCE = 64
"""Tasks of the steps that measure how the cost grows with tasks, and of those of which the memory is read."""

TASK_ROUNDS = 15
"""How many of those steps."""

LEVELS = ("capabilities", "pid")
"""Measured unless asked otherwise: those of the keys without a level in their name."""


@dataclass(frozen=True)
class StepCost:
    """Measured on one worker; names are levels of the jail, and of `memory` WITHOUT."""

    rounds: int
    mounts: int
    steps: dict[str, list[float]]
    """Times of `srun true` in ms."""
    without: dict[str, list[float]]
    """The same without the plugin, in the rounds of a level."""
    tasks: dict[str, list[float]]
    """Of steps with 64 tasks: what all of them together spent on entering the jail, in ms."""
    memory: dict[str, float]
    """Proportional set size of slurmstepd and all it started, in KiB a task."""
    seconds: float

    def levels(self) -> list[str]:
        """The levels measured, in the order asked for."""
        return list(self.steps)

    def added(self, level: str, percent: float) -> float:
        """What `level` adds to `srun true`: the difference of two percentiles, in ms."""
        return percentile(self.steps[level], percent) - percentile(self.without[level], percent)

    def uncertainty(self, level: str, percent: float) -> float:
        """Half the width of the 95 % confidence interval of `added`, in ms."""
        return math.hypot(uncertainty(self.steps[level], percent), uncertainty(self.without[level], percent))

    def entering(self, level: str) -> float:
        """What 64 tasks together spend on entering at the median, in ms, on however many processors."""
        return percentile(self.tasks[level], 50)

    def memory_added(self, level: str) -> float:
        """What `level` adds to the memory of a step, in KiB a task."""
        return self.memory[level] - self.memory[WITHOUT]

    def keys(self) -> dict[str, float]:
        """The keys that `build.py bench jail --json` prints.

        Those that others rely on are of level capabilities, the jail's default, and say so only here;
        a level that was not measured has no keys.
        """
        default, pid = LEVELS
        keys: dict[str, float] = {}
        if default in self.steps:
            keys["step_overhead_ms_p50"] = round(self.added(default, 50), 3)
            keys["step_overhead_ms_p99"] = round(self.added(default, 99), 3)
            keys["tasks64_enter_ms"] = round(self.entering(default), 3)
        if default in self.steps and pid in self.steps:
            keys["pid_level_extra_ms_p50"] = round(self.added(pid, 50) - self.added(default, 50), 3)
        keys |= {"rounds": self.rounds, "mounts": self.mounts}
        for level in self.levels():
            for name, values in ((level, self.steps[level]), (f"{WITHOUT}_{level}", self.without[level])):
                keys[f"step_ms_p50_{name}"] = round(percentile(values, 50), 3)
                keys[f"step_ms_p99_{name}"] = round(percentile(values, 99), 3)
            keys[f"step_overhead_ms_p50_{level}"] = round(self.added(level, 50), 3)
            keys[f"step_overhead_ms_p99_{level}"] = round(self.added(level, 99), 3)
            keys[f"step_overhead_ms_p50_uncertainty_{level}"] = round(self.uncertainty(level, 50), 3)
            keys[f"step_overhead_ms_p99_uncertainty_{level}"] = round(self.uncertainty(level, 99), 3)
            keys[f"tasks64_enter_ms_{level}"] = round(self.entering(level), 3)
            keys[f"memory_kib_per_task_{level}"] = round(self.memory_added(level), 1)
        return keys


@dataclass
class _Lines:
    """Collects what the script prints: KIND NAME NUMBER, a line a run."""

    rounds: int
    names: int
    events: Events
    found: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    def __call__(self, text: str) -> None:
        fields = text.split()
        if len(fields) != 3 or not fields[2].isdigit():
            return
        kind, name, number = fields
        self.found[kind][name].append(int(number))
        if kind == "step":
            done = sum(map(len, self.found["step"].values())) // self.names
            self.events.emit(Progress("steps", done, self.rounds, "rounds"))

    def milliseconds(self, kind: str) -> dict[str, list[float]]:
        return {name: [value / 1000 for value in values] for name, values in self.found[kind].items()}


def step_cost(name: str, levels: Sequence[str], rounds: int, mounts: int, events: Events) -> StepCost:
    """Measure on the first worker of the running cluster `name`, with a plan of `mounts` lines.

    Raises UsageError for fewer than two rounds and CellblockError when there is no such cluster or a
    step fails. The worker's configuration is as before afterwards.
    """
    if rounds < 2:
        raise UsageError(f"{rounds} pairs give no percentile", hint="use --pairs 1000")
    known = state.require(name)
    started = time.monotonic()
    lines = _Lines(rounds * len(levels), 2, events)
    environment = {
        "LEVELS": " ".join(levels),
        "ROUNDS": str(rounds),
        "MOUNTS": str(mounts),
        "TASKS": str(TASKS_AT_ONCE),
        "TASK_ROUNDS": str(min(rounds, TASK_ROUNDS)),
    }
    script = files("cellblock.bench").joinpath("jail.sh").read_text()
    with connect(known.engine) as client, events.step("steps", f"{rounds} rounds of srun true"):
        container = client.containers.get(container_name(name, "worker-1"))
        command = ["salloc", "--quiet", "--nodelist=worker-1", "bash", "-c", script]
        status, rest = stream(client.api, container.id, command, environment, lines)
    times = lines.milliseconds("step")
    steps = {level: times.get(level, []) for level in levels}
    without = {level: times.get(f"{WITHOUT}:{level}", []) for level in levels}
    if status != 0 or any(len(each) != rounds for each in (*steps.values(), *without.values())):
        raise CellblockError(
            f"the benchmark ended with status {status}: {rest}",
            hint=f"`build.py status{name_option(name)}` shows whether the workers take jobs",
        )
    memory = {each: values[0] for each, values in lines.found["memory"].items()}
    seconds = time.monotonic() - started
    return StepCost(rounds, mounts, steps, without, lines.milliseconds("tasks"), memory, seconds)


def stream(
    api: Any,
    container: str | None,
    command: list[str],
    environment: dict[str, str],
    line: Callable[[str], None],
) -> tuple[int, str]:
    """Run `command` in a container, passing on each line; returns status and the last line."""
    running = api.exec_create(container, command, environment=environment)
    pending, last = "", ""
    for chunk in api.exec_start(running["Id"], stream=True):
        *lines, pending = (pending + chunk.decode(errors="replace")).split("\n")
        for text in lines:
            line(text)
            last = text or last
    return int(api.exec_inspect(running["Id"])["ExitCode"]), pending or last
