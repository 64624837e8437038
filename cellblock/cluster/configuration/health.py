# SPDX-License-Identifier: Apache-2.0
"""Works out the settings of health checks for slurm.conf and for health.conf (docs/health.md).

definition/health_part.py reads them from the cluster file.
"""

from __future__ import annotations

from dataclasses import dataclass

from cellblock.cluster.definition.amounts import seconds
from cellblock.cluster.definition.health_part import (
    Health,
    HealthCheck,
    active_checks,
    gpu_checks,
    is_of_gpus,
)

SITE_CHECKS = "/usr/lib/cellblock/health-site"
"""Where a site's own checks are on a node."""


@dataclass(frozen=True)
class HealthFacts:
    """What templates see of it: the time between turns, and the lines of health.conf.

    `active_s`: seconds until a job measures a node again, 0 for never; `active_lines` are of its own file.
    """

    interval_s: int
    lines: tuple[str, ...]
    active_s: int = 0
    active_lines: tuple[str, ...] = ()


def health_facts(health: Health | None, overstated: bool, gpus: bool) -> HealthFacts | None:
    """How nodes are looked at; None when they are not.

    `overstated`: nodes declare more than their machine has, on purpose. `gpus`: some declare GPUs.
    """
    if health is None:
        return None
    budget = health.budget
    first = f"budget least={budget.least} percent={budget.percent} within={seconds(budget.within)}"
    active = health.active
    every = seconds(active.every) if active else 0
    lines = [
        first,
        f"folder {SITE_CHECKS}",
        *_lines(health, active=False),
        *(["check resources off"] if overstated else []),
        *(f"check {name} off" for name in gpu_checks() if not gpus),
    ]
    active_lines = [
        first,
        *(f"check {name} every={every}" for name in active_checks()),
        *_lines(health, active=True),
        *(f"check {name} off" for name in active_checks() if not gpus and is_of_gpus(name)),
    ]
    return HealthFacts(seconds(health.interval), tuple(lines), every, tuple(active_lines))


def _lines(health: Health, *, active: bool) -> list[str]:
    """What the cluster file says of those checks that are jobs, or of the others."""
    of_jobs = active_checks()
    return [
        *(
            f"check {name} {' '.join(_settings(check))}".rstrip()
            for name, check in health.checks.items()
            if (name in of_jobs) == active
        ),
        *(f"check {name} off" for name in health.leave_out if (name in of_jobs) == active),
    ]


def _settings(check: HealthCheck) -> list[str]:
    words: dict[str, object] = {
        "strikes": check.strikes,
        "passes": check.passes,
        "limit": None if check.limit is None else seconds(check.limit),
        "every": None if check.every is None else seconds(check.every),
        "optional": None if check.optional is None else ("no", "yes")[check.optional],
        # Before the action, which it changes.
        "user": check.user,
        "action": check.action,
        "undo": None if check.undo is None else ("no", "yes")[check.undo],
        "prolog": None if check.prolog is None else ("no", "yes")[check.prolog],
        **check.settings,
    }
    return [f"{key}={value}" for key, value in words.items() if value is not None]
