# SPDX-License-Identifier: Apache-2.0
"""Attempts until one succeeds, and the waits between them."""

from __future__ import annotations

import email.utils
import time
from collections.abc import Sequence

import pytest
from tenacity import Retrying

from cellblock.retries import count_anew, retry_after, retrying


class Passing(Exception):
    def __init__(self, text: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


def no_wait(_: float) -> None:
    """Waits for nothing."""


def failing(attempts: Retrying, errors: Sequence[BaseException], progress: int | None = None) -> int:
    """How many attempts were made while each of `errors` was raised; number `progress` achieved something."""
    made, raised = 0, None
    try:
        for attempt in attempts:
            with attempt:
                made += 1
                if made == progress:
                    count_anew(attempt)
                if made <= len(errors):
                    raise errors[made - 1]
    except BaseException as error:
        raised = error
    assert raised is (errors[made - 1] if made <= len(errors) else None)
    return made


def test_there_are_attempts_until_one_succeeds() -> None:
    assert failing(retrying(Passing, 4, sleep=no_wait), [Passing(), Passing()]) == 3


def test_the_last_error_is_raised_after_growing_waits() -> None:
    waits: list[float] = []
    assert failing(retrying(Passing, 4, sleep=waits.append), [Passing() for _ in range(9)]) == 4
    assert len(waits) == 3
    for wait, longest in zip(waits, (0.5, 1, 2), strict=True):
        assert longest / 2 <= wait <= longest


@pytest.mark.parametrize("error", [ValueError(), KeyboardInterrupt(), GeneratorExit()])
def test_another_error_is_raised_at_once(error: BaseException) -> None:
    assert failing(retrying(Passing, 4, sleep=no_wait), [error]) == 1


def test_the_time_that_an_error_names_is_the_least_to_wait() -> None:
    waits: list[float] = []
    told: list[float] = []
    attempts = retrying(Passing, 4, sleep=waits.append, before_sleep=lambda _, seconds: told.append(seconds))
    assert failing(attempts, [Passing(retry_after_s=7)]) == 2
    assert waits == told
    assert 7 <= waits[0] <= 7.125


def test_an_error_decides_how_many_attempts_it_is_worth() -> None:
    def worth(error: Passing) -> int:
        return 1 if str(error) == "no more" else 6

    errors = [Passing(), Passing("no more"), Passing()]
    assert failing(retrying(Passing, worth, sleep=no_wait), errors) == 2


def test_an_attempt_that_achieved_something_counts_as_the_first() -> None:
    assert failing(retrying(Passing, 3, sleep=no_wait), [Passing() for _ in range(9)], progress=2) == 4


def test_retry_after_is_a_number_or_a_date() -> None:
    date = email.utils.formatdate(time.time() + 3600, usegmt=True)
    by_date = retry_after({"Retry-After": date})
    assert retry_after({"Retry-After": "7"}) == 7
    assert by_date is not None
    assert 3000 < by_date <= 3600
    assert retry_after({"Retry-After": "soon"}) is None
    assert retry_after({}) is None
