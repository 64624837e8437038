"""What the jail costs a step: pairs of `srun true`, with the plugin and without, interleaved.

Both halves of a pair run on one worker of one cluster, inside one allocation, so that only the step is
timed. The worker's plugstack.conf is replaced by rename between them, outside the timed part: Slurm
reads it at each launch, in srun and in slurmstepd. Which half comes first alternates.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cellblock.bench.percentile import percentile
from cellblock.cluster import state
from cellblock.cluster.api import connect
from cellblock.cluster.containers import container_name
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events, Progress

# Runs on the worker, outside the jail. Prints a line a pair: the two times in microseconds, with first.
_PAIRS = """
set -eu
cd /var/spool/slurmd/conf-cache
cp -p plugstack.conf /tmp/plugstack.with
trap 'cp -p /tmp/plugstack.with plugstack.conf.new; mv plugstack.conf.new plugstack.conf' EXIT
: > /tmp/plugstack.without
step() {
    cp /tmp/plugstack.$1 plugstack.conf.new
    mv plugstack.conf.new plugstack.conf
    t0=$EPOCHREALTIME
    srun --immediate=60 true </dev/null
    t1=$EPOCHREALTIME
    took=$(( ${t1/./} - ${t0/./} ))
}
# The two must differ in what a task sees, or nothing is compared.
step with; inside=$(srun stat -c %d:%i /)
step without; outside=$(srun stat -c %d:%i /)
[ "$inside" != "$outside" ] || { echo "a task's / is $outside with the plugin and without"; exit 1; }
for (( i = 0; i < PAIRS; i++ )); do
    if (( i % 2 )); then
        step with; with=$took; step without; without=$took
    else
        step without; without=$took; step with; with=$took
    fi
    echo "$with $without"
done
"""


@dataclass(frozen=True)
class StepOverhead:
    """Times of `srun true` in milliseconds, with the jail plugin and without, over `pairs` pairs."""

    pairs: int
    with_p50: float
    with_p99: float
    without_p50: float
    without_p99: float
    seconds: float

    def keys(self) -> dict[str, float]:
        """The keys that `build.py bench jail --json` prints."""
        return {
            "step_overhead_ms_p50": round(self.with_p50 - self.without_p50, 3),
            "step_overhead_ms_p99": round(self.with_p99 - self.without_p99, 3),
            "step_with_ms_p50": round(self.with_p50, 3),
            "step_without_ms_p50": round(self.without_p50, 3),
            "step_with_ms_p99": round(self.with_p99, 3),
            "step_without_ms_p99": round(self.without_p99, 3),
            "pairs": self.pairs,
        }


def step_overhead(name: str, pairs: int, events: Events) -> StepOverhead:
    """Measure on the first worker of the running cluster `name`.

    Raises UsageError for fewer than two pairs and CellblockError when there is no such cluster or a
    step fails. The worker's configuration is as before afterwards.
    """
    if pairs < 2:
        raise UsageError(f"{pairs} pairs give no percentile", hint="use --pairs 1000")
    known = state.require(name)
    started = time.monotonic()
    samples: list[tuple[int, int]] = []

    def line(text: str) -> None:
        fields = text.split()
        if len(fields) == 2 and all(field.isdigit() for field in fields):
            samples.append((int(fields[0]), int(fields[1])))
            events.emit(Progress("steps", len(samples), pairs, "pairs"))

    with connect(known.engine) as client, events.step("steps", f"{pairs} pairs of srun true"):
        container = client.containers.get(container_name(name, "worker-1"))
        command = ["salloc", "--quiet", "--nodelist=worker-1", "bash", "-c", _PAIRS]
        status, rest = _stream(client.api, container.id, command, {"PAIRS": str(pairs)}, line)
    if status != 0 or len(samples) != pairs:
        raise CellblockError(
            f"the benchmark ended with status {status} after {len(samples)} pairs: {rest}",
            hint="`build.py status` shows whether the workers take jobs",
        )
    with_ms = [sample[0] / 1000 for sample in samples]
    without_ms = [sample[1] / 1000 for sample in samples]
    return StepOverhead(
        pairs,
        percentile(with_ms, 50),
        percentile(with_ms, 99),
        percentile(without_ms, 50),
        percentile(without_ms, 99),
        time.monotonic() - started,
    )


def _stream(
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
