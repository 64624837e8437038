# SPDX-License-Identifier: Apache-2.0
"""The keys of `build.py bench jail --json`, which others read."""

import pytest

from cellblock.bench.jail import LEVELS, WITHOUT, StepCost


def cost(*levels: str) -> StepCost:
    """Runs of 50 and 51 ms without the jail; each level adds one millisecond more than the one before it."""
    added = {name: float(number) for number, name in enumerate((WITHOUT, *levels))}
    return StepCost(
        rounds=2,
        mounts=20,
        steps={name: [50 + added[name], 51 + added[name]] for name in levels},
        without={name: [50, 51] for name in levels},
        tasks={name: [10 + added[name]] for name in levels},
        memory={name: 1000 + 10 * more for name, more in added.items()},
        seconds=1,
    )


def test_keys_without_a_level_are_of_the_default_one() -> None:
    keys = cost(*LEVELS).keys()
    assert keys["step_overhead_ms_p50"] == keys["step_overhead_ms_p50_capabilities"] == 1
    assert keys["step_overhead_ms_p99"] == 1
    assert keys["tasks64_enter_ms"] == 11


def test_the_extra_of_level_pid_is_what_it_adds_to_level_capabilities() -> None:
    assert cost(*LEVELS).keys()["pid_level_extra_ms_p50"] == 1


@pytest.mark.parametrize(
    ("measured", "missing"),
    [
        (["capabilities"], {"pid_level_extra_ms_p50"}),
        (
            ["pid"],
            {"step_overhead_ms_p50", "step_overhead_ms_p99", "tasks64_enter_ms", "pid_level_extra_ms_p50"},
        ),
    ],
)
def test_a_level_that_was_not_measured_gives_no_key(measured: list[str], missing: set[str]) -> None:
    assert cost(*LEVELS).keys().keys() - cost(*measured).keys().keys() >= missing
