# SPDX-License-Identifier: Apache-2.0
"""Retries what failed for a reason that may pass, with growing waits between the attempts.

    for attempt in retrying(Broken, attempts=5):
        with attempt:
            fetch()

The last error is raised. Other errors are raised at once. Waiting is done by tenacity.

`retry_after` reads the header Retry-After, for registries (oci/registry/errors.py) and mirrors
(packages/transfer.py). The registry client in C has its own: native/registry/transport.c.
"""

from __future__ import annotations

import email.utils
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from tenacity import (
    AttemptManager,
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    wait_exponential,
    wait_random_exponential,
)

_Error = TypeVar("_Error", bound=Exception)

# 0.5, 1, 2 ... 30 s, half of it by chance: clients that failed together do not come back together.
BACKOFF = wait_exponential(multiplier=0.25, max=15) + wait_random_exponential(multiplier=0.25, max=15)
# What a server says beyond a year is no time to wait for, and may be beyond any calendar.
LONGEST_S = 366.0 * 24 * 3600


def retrying(
    passing: type[_Error],
    attempts: int | Callable[[_Error], int],
    *,
    sleep: Callable[[float], None] = time.sleep,
    before_sleep: Callable[[_Error, float], None] = lambda _error, _seconds: None,
) -> Retrying:
    """At most `attempts` of them, as long as each raises `passing`.

    An error's `retry_after_s` is the least time to wait, where it has one. `sleep` waits, and may raise to
    end the attempts; `before_sleep` is called with the error and the seconds that will be waited.
    """

    def enough(state: RetryCallState) -> bool:
        limit = attempts if isinstance(attempts, int) else attempts(_error(state, passing))
        return state.attempt_number >= limit

    def tell(state: RetryCallState) -> None:
        before_sleep(_error(state, passing), state.next_action.sleep if state.next_action else 0)

    return Retrying(
        retry=retry_if_exception_type(passing),
        stop=enough,
        wait=_wait,
        sleep=sleep,
        before_sleep=tell,
        reraise=True,
    )


def count_anew(attempt: AttemptManager) -> None:
    """Something was achieved in `attempt`: when it fails, it counts as the first to do so."""
    attempt.retry_state.attempt_number = 1


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that Retry-After asks for (RFC 9110, 10.2.3: a number or a date); None without one."""
    value = headers.get("Retry-After", "").strip()
    if value.isdecimal():
        return min(float(value), LONGEST_S)
    try:
        date = email.utils.parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(0.0, date - time.time()), LONGEST_S)


def _wait(state: RetryCallState) -> float:
    asked: float | None = getattr(_error(state, Exception), "retry_after_s", None)
    return BACKOFF(state) if asked is None else asked + BACKOFF(state) / 4


def _error(state: RetryCallState, kind: type[_Error]) -> _Error:
    """The error that ended the attempt."""
    found = state.outcome.exception() if state.outcome else None
    assert isinstance(found, kind)
    return found
