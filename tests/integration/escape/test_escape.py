# SPDX-License-Identifier: Apache-2.0
"""Root inside a job tries to get out: one test a way and level. README.md of this folder says how."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.conftest import other_variants
from tests.integration.escape.arena import LEVELS, Arena, Level, Outcome
from tests.integration.escape.cases import (
    CASES,
    LAUNCH_FOR_NO_JOB,
    MANY_CONNECTIONS,
    ODD_REQUESTS,
    ODD_SUBMISSIONS,
    ROGUE_CONTROLLER,
    STEPS_WITHOUT_END,
    STOPPED_CLIENTS,
    Case,
)
from tests.integration.escape.ways import slurm
from tests.integration.local_cluster import Unclear

pytestmark = pytest.mark.integration


def outcome_of(case: Case, level: Level, arena: Arena) -> Outcome:
    arena.switch(level)
    if case.way:
        outcome = case.way(arena, case.user)
    else:
        names = [other.name for other in CASES if other.user == case.user and not other.way]
        outcome = arena.batch(level, case.user, names)[case.name]
    if outcome.kind == "broken":
        arena.forget(level, case.user)
        raise Unclear(outcome.what)
    return outcome


def held_cases() -> Iterator[object]:
    """By level, so that each is switched to once."""
    for level in LEVELS:
        for case in CASES:
            if case.held_at(level):
                yield pytest.param(case, level, id=f"{case.id}[{level}]")


@pytest.mark.parametrize(
    "case",
    [pytest.param(one, id=one.id) for one in CASES if one.stops != "filesystem" and one.below == "escaped"],
)
def test_gets_out_below_the_level_that_stops_it(case: Case, arena: Arena) -> None:
    """What proves that the other test can fail. An attack that did not come about in time is tried again."""
    outcome = outcome_of(case, "filesystem", arena)
    if outcome.kind == "absent":
        pytest.skip(f"nothing to see on this machine: {outcome.what}")
    if outcome.kind != "escaped":
        raise Unclear(outcome.what)


@pytest.mark.parametrize(("case", "level"), list(held_cases()))
def test_holds(case: Case, level: Level, arena: Arena) -> None:
    check_held(case, level, arena)


def check_held(case: Case, level: Level, arena: Arena) -> None:
    outcome = outcome_of(case, level, arena)
    if case.is_open(arena.cluster.status.release):
        assert outcome.kind == "escaped", f"it is closed now ({outcome.what}): let its case say so"
        pytest.xfail(f"{outcome.what}: {case.open}")
    assert outcome.kind in ("held", "absent"), outcome.what


@pytest.mark.parametrize("level", LEVELS)
def test_a_job_is_at_the_level_that_is_set(level: Level, arena: Arena) -> None:
    """Or the other tests of this file would prove nothing."""
    arena.switch(level)
    capabilities = arena.srun("grep", "CapBnd", "/proc/self/status").ok().split()[1]
    can_mount = bool(int(capabilities, 16) & 1 << 21)
    assert can_mount == (level == "filesystem")
    own_processes = arena.srun("readlink", "/proc/self/ns/pid").ok()
    node = arena.on_worker("readlink", "/proc/self/ns/pid").ok()
    assert (own_processes == node) == (level == "filesystem")


def test_names_are_unique() -> None:
    names = [case.id for case in CASES]
    assert len(set(names)) == len(names)


def check_rogue_controller(arena: Arena) -> None:
    try:
        check_held(ROGUE_CONTROLLER, "capabilities", arena)
    finally:
        slurm.leave_the_rogue(arena)


def test_a_controller_of_the_users_own_does_not_configure_slurmd(arena: Arena) -> None:
    check_rogue_controller(arena)


def test_a_launch_for_no_job_does_not_drain_the_node(arena: Arena) -> None:
    check_held(LAUNCH_FOR_NO_JOB, "capabilities", arena)


def test_many_connections_leave_slurmd_and_the_node_to_others(arena: Arena) -> None:
    check_held(MANY_CONNECTIONS, "capabilities", arena)


def test_steps_whose_sruns_are_killed_leave_the_node_to_others(arena: Arena) -> None:
    check_held(STEPS_WITHOUT_END, "capabilities", arena)


def test_slurmctld_starts_with_what_a_user_submitted(arena: Arena) -> None:
    check_held(ODD_SUBMISSIONS, "capabilities", arena)


def test_slurmctld_outlasts_odd_requests(arena: Arena) -> None:
    check_held(ODD_REQUESTS, "capabilities", arena)


def test_clients_that_are_stopped_do_not_keep_a_step(arena: Arena) -> None:
    check_held(STOPPED_CLIENTS, "capabilities", arena)


every_other_slurm = pytest.mark.parametrize("arena", other_variants(), indirect=True, scope="package")


@every_other_slurm
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(one, id=one.id, marks=[pytest.mark.others_at_night] * one.others_at_night)
        for one in CASES
        if one.held_at("capabilities")
    ],
)
def test_holds_with_other_releases_of_slurm(case: Case, arena: Arena) -> None:
    """At the level that is the default; what levels differ in is the kernel's, whatever Slurm."""
    check_held(case, "capabilities", arena)


@every_other_slurm
def test_a_controller_of_the_users_own_does_not_configure_another_slurmd(arena: Arena) -> None:
    check_rogue_controller(arena)


@every_other_slurm
def test_a_launch_for_no_job_does_not_drain_another_slurms_node(arena: Arena) -> None:
    check_held(LAUNCH_FOR_NO_JOB, "capabilities", arena)


@every_other_slurm
def test_many_connections_leave_another_slurmd_to_others(arena: Arena) -> None:
    check_held(MANY_CONNECTIONS, "capabilities", arena)


@every_other_slurm
def test_another_slurmctld_starts_with_what_a_user_submitted(arena: Arena) -> None:
    check_held(ODD_SUBMISSIONS, "capabilities", arena)


@pytest.mark.others_at_night
@every_other_slurm
def test_another_slurmctld_outlasts_odd_requests(arena: Arena) -> None:
    check_held(ODD_REQUESTS, "capabilities", arena)
