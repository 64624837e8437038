# SPDX-License-Identifier: Apache-2.0
"""The health of nodes as slurm.conf and node-health's own file have it (docs/health.md)."""

from __future__ import annotations

from dataclasses import dataclass

from cellblock.cluster.definition.amounts import seconds
from cellblock.cluster.definition.health_part import Health, HealthCheck

SITE_CHECKS = "/usr/lib/cellblock/health-site"
"""Where a site's own checks are on a node."""


@dataclass(frozen=True)
class HealthFacts:
    """What templates see of it: the time between turns, and the lines of health.conf."""

    interval_s: int
    lines: tuple[str, ...]


def health_facts(health: Health | None, overstated: bool) -> HealthFacts | None:
    """How nodes are looked at; None when they are not.

    `overstated`: nodes declare more than their machine has, on purpose.
    """
    if health is None:
        return None
    budget = health.budget
    lines = [
        f"budget least={budget.least} percent={budget.percent} within={seconds(budget.within)}",
        f"folder {SITE_CHECKS}",
        *(f"check {name} {' '.join(_settings(check))}".rstrip() for name, check in health.checks.items()),
        *(f"check {name} off" for name in health.leave_out),
        *(["check resources off"] if overstated else []),
    ]
    return HealthFacts(seconds(health.interval), tuple(lines))


def _settings(check: HealthCheck) -> list[str]:
    words: dict[str, object] = {
        "strikes": check.strikes,
        "passes": check.passes,
        "limit": None if check.limit is None else seconds(check.limit),
        "every": None if check.every is None else seconds(check.every),
        "action": check.action,
        "undo": None if check.undo is None else ("no", "yes")[check.undo],
        "prolog": None if check.prolog is None else ("no", "yes")[check.prolog],
        **check.settings,
    }
    return [f"{key}={value}" for key, value in words.items() if value is not None]
