# SPDX-License-Identifier: Apache-2.0
"""Measures what a container adds to a step of Slurm: `srun true` with --container-* and without, in turns.

All steps run on a running cluster in one allocation, in the jail, by an ordinary user. The image is the big
one of `bench enroot`, 1.5 GB in eight layers: as a .sqsh file, as a named container that exists, and from a
registry while the cache has it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from cellblock.bench.harness.percentile import percentile
from cellblock.bench.harness.registry import registry
from cellblock.bench.harness.scratch import scratch
from cellblock.bench.inputs.import_images import layout
from cellblock.bench.jail import stream
from cellblock.cluster.definition.names import name_option
from cellblock.cluster.engine.api import connect
from cellblock.cluster.engine.container_specs import container_name, network_name
from cellblock.cluster.facts import state
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events, Progress

USER = "cellblock-bench"
_ADD_USER = f"id {USER} >/dev/null 2>&1 || useradd --create-home --shell /bin/bash {USER}"


@dataclass(frozen=True)
class ContainerCost:
    """Times of steps in ms, by kind (pyxis.sh); `seconds` is what the benchmark took."""

    rounds: int
    steps: dict[str, list[float]]
    seconds: float

    def _median(self, kind: str) -> float | None:
        return percentile(self.steps[kind], 50) if self.steps.get(kind) else None

    def _over(self, kind: str, bare: str = "bare") -> float | None:
        one, other = self._median(kind), self._median(bare)
        return None if one is None or other is None else round(one - other, 1)

    def keys(self) -> dict[str, float | None]:
        """The keys that `build.py bench pyxis --json` prints: medians, and differences of medians."""
        bare = self._median("bare")
        return {
            "bare_ms": None if bare is None else round(bare, 1),
            "existing_over_bare_ms": self._over("existing"),
            "sqsh_over_bare_ms": self._over("sqsh"),
            "registry_cached_over_bare_ms": self._over("registry_cached"),
            "tasks16_over_bare_ms": self._over("tasks16", "bare16"),
            "rounds": self.rounds,
        }


def container_cost(name: str, rounds: int, events: Events) -> ContainerCost:
    """Measure on the first worker of the running cluster `name`, `rounds` steps of each kind.

    Raises UsageError for fewer than two rounds, and CellblockError when there is no such cluster, a tool is
    missing or a step fails.
    """
    if rounds < 2:
        raise UsageError(f"{rounds} rounds give no median", hint="use --rounds 50")
    known = state.require(name)
    began = time.monotonic()
    steps: dict[str, list[float]] = defaultdict(list)

    def line(text: str) -> None:
        kind, _, number = text.partition(" ")
        if number.isdigit():
            steps[kind].append(int(number) / 1000)
            events.emit(Progress("steps", len(steps[kind]), rounds, "rounds"))

    home = Path(known.volume) / "root/home" / USER
    script = files("cellblock.bench").joinpath("pyxis.sh").read_text()
    with events.step("images", "an image of 1.5 GB, made once"):
        layout()
    with connect(known.engine) as client, scratch() as folder:
        login: Any = client.containers.get(container_name(name, "login"))
        login.exec_run(["jail-enter", "--", "sh", "-c", _ADD_USER])
        gateway = client.networks.get(network_name(name)).attrs["IPAM"]["Config"][0]["Gateway"]
        command = ["jail-enter", "--user", USER, "--", "salloc", "--quiet", "--nodelist=worker-1", "-n1"]
        try:
            with registry(folder, ["big"], gateway) as host, events.step("steps", f"{rounds} rounds"):
                settings = home / ".config/containers/registries.conf"
                settings.parent.mkdir(parents=True, exist_ok=True)
                settings.write_text(f'[[registry]]\nlocation = "{host}"\ninsecure = true\n')
                arguments = ["bash", "-c", script, "bench", str(rounds), f"{host}#bench/big:1"]
                status, rest = stream(client.api, login.id, [*command, *arguments], {}, line)
        finally:
            login.exec_run(["jail-enter", "--", "sh", "-c", f"userdel --remove {USER}"])
    if status != 0 or not all(len(each) == rounds for each in steps.values()):
        raise CellblockError(
            f"the benchmark ended with status {status}: {rest}",
            hint=f"`build.py status{name_option(name)}` shows whether the workers take jobs",
        )
    return ContainerCost(rounds, dict(steps), time.monotonic() - began)
