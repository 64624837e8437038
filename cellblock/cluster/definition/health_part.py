# SPDX-License-Identifier: Apache-2.0
"""Defines the part `health` of the cluster file, about the health of nodes (docs/health.md)."""

from __future__ import annotations

import functools
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from cellblock import paths
from cellblock.cluster.definition.amounts import seconds
from cellblock.cluster.definition.kubernetes_value_types import Duration
from cellblock.cluster.definition.strict_model import Strict as _Strict

_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
_USER = re.compile(r"[a-z_0-9][a-z0-9_-]{0,31}")
_KEY = re.compile(r"[a-z]{1,20}")
_VALUE = re.compile(r"[A-Za-z0-9/][A-Za-z0-9_.:/,+-]{0,199}")
_STRIKES = re.compile(r"([1-9]\d?)/([1-9]\d?)")
# spank_jail/health/config.h: HEALTH_MOST_STRIKES.
_MOST_STRIKES = 32
# spank_jail/health/config.c: what a line of a check sets besides its program's arguments.
_OWN = ("limit", "strikes", "passes", "every", "optional", "user", "action", "undo", "prolog")
_LONGEST_CHECK_S = 3600


def _check_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(f"'{value}' is no check: lower-case letters, digits and '-', a letter first")
    return value


def _setting(value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise ValueError(f"'{value}' is no setting: only letters, digits and _ . : / , + -, at most 200")
    return value


def _strikes(value: str) -> str:
    found = _STRIKES.fullmatch(value)
    if not found or not int(found[1]) <= int(found[2]) <= _MOST_STRIKES:
        raise ValueError(f"'{value}' is no N/M: N failures of the last M runs, as in 3/5, M at most 32")
    return value


def _user(value: str) -> str:
    if not _USER.fullmatch(value):
        raise ValueError(f"'{value}' is no user: lower-case letters, digits, _ and -, at most 32")
    return value


CheckUser = Annotated[str, AfterValidator(_user)]
Setting = Annotated[str, AfterValidator(_setting)]
CheckName = Annotated[str, AfterValidator(_check_name)]
Strikes = Annotated[str, AfterValidator(_strikes)]


class HealthBudget(_Strict):
    """How many nodes one check may drain, so that a broken check does not drain the cluster."""

    least: int = Field(default=2, ge=0, le=65000)
    """So many nodes in any case."""
    percent: int = Field(default=10, ge=0, le=100)
    """And so many percent of the cluster's nodes, when that is more."""
    within: Duration = "1h"
    """Drains from before that do not count."""


class HealthCheck(_Strict):
    """What is different for one check; without a key: what the image or the site's folder says."""

    strikes: Strikes | None = None
    """N/M: after N failures of its last M runs the node is sick."""
    passes: int | None = Field(default=None, ge=1, le=1000)
    """It is healthy again after so many runs in a row that pass."""
    limit: Duration | None = None
    """How long it may run. One that takes longer than 40 s runs beside the others, for the next turn."""
    every: Duration | None = None
    """How long it is left out after it has passed; without: it runs in each turn."""
    action: Literal["drain", "warn"] | None = None
    """What follows when the node is sick."""
    undo: bool | None = None
    """Whether the node serves again, by itself, when the check is healthy again."""
    prolog: bool | None = None
    """Whether it runs before each job as well, where one failure puts the job back and drains the node."""
    optional: bool | None = None
    """Whether a job may have it left out before it starts: `--comment=health-leave-out=NAME`."""
    user: CheckUser | None = None
    """It is a script of sh, and runs in the jail as this user. It warns, unless `action` says otherwise."""
    settings: dict[str, int | Setting] = Field(default_factory=dict)
    """Arguments of the check's program, as in `full: 90`."""

    @model_validator(mode="after")
    def _settings_are_settings(self) -> HealthCheck:
        for key in self.settings:
            if key in _OWN:
                raise ValueError(f"settings: {key} is a key of the check itself; write it beside `settings`")
            if not _KEY.fullmatch(key):
                raise ValueError(f"settings: '{key}' is no name of a setting: at most 20 lower-case letters")
        if self.limit and seconds(self.limit) > _LONGEST_CHECK_S:
            raise ValueError(f"limit: '{self.limit}' is too long: at most 1h")
        return self


class HealthActive(_Strict):
    """Jobs that measure idle nodes, and compare each with its set. Any user's job ends them at once."""

    every: Duration = "1d"
    """How long a node that has passed is left alone, unless it is started again or was drained."""


class Health(_Strict):
    """Checks of nodes: which run, how often, and how many nodes they may drain."""

    interval: Duration = "1m"
    """How long from turn to turn on a node. Nodes take their turns at different times."""
    leave_out: tuple[CheckName, ...] = Field(default=(), strict=False)
    """Checks that do not run."""
    checks: dict[CheckName, HealthCheck] = Field(default_factory=dict)
    """What is different for a check."""
    budget: HealthBudget = HealthBudget()
    """How many nodes one check may drain."""
    active: HealthActive | None = HealthActive()
    """Jobs that measure idle nodes; `null` for none."""
    folder: str | None = None
    """Folder of the site's own checks on one machine; a relative one begins where this file is. On Kubernetes
    they are in an image of the site's, at /usr/lib/cellblock/health-site."""

    @model_validator(mode="after")
    def _turns_end(self) -> Health:
        if seconds(self.interval) < 10:
            raise ValueError(f"interval: '{self.interval}' is too short: at least 10s")
        if self.active and seconds(self.active.every) < 60:
            raise ValueError(f"active.every: '{self.active.every}' is too short: at least 1m")
        return self

    @property
    def named(self) -> tuple[tuple[tuple[str | int, ...], str], ...]:
        """Where the part names a check, and its name."""
        return (
            *((("leave_out", place), name) for place, name in enumerate(self.leave_out)),
            *((("checks", name), name) for name in self.checks),
        )


def _checks_of(table: str) -> tuple[str, ...]:
    lines = (line.split() for line in (paths.PROJECT / table).read_text(encoding="utf-8").splitlines())
    return tuple(words[1] for words in lines if words[:1] == ["check"])


@functools.cache
def own_checks() -> tuple[str, ...]:
    """The names of the checks that are in the worker's image."""
    return _checks_of("images/worker/files/usr/lib/cellblock/health/checks.conf")


@functools.cache
def active_checks() -> tuple[str, ...]:
    """The names of the checks that are jobs."""
    return _checks_of("images/controller/files/usr/lib/cellblock/health-active/checks.conf")


def gpu_checks() -> tuple[str, ...]:
    """Those of the worker's image that look at GPUs."""
    return tuple(name for name in own_checks() if is_of_gpus(name))


def is_of_gpus(name: str) -> bool:
    """Whether a check of this name looks at GPUs."""
    return name.partition("-")[0] == "gpu"
