# SPDX-License-Identifier: Apache-2.0
"""A registry's refusals become errors that say what to do."""

from __future__ import annotations

import json
import time

import pytest

from cellblock.oci.registry.errors import (
    NotInRegistry,
    RateLimited,
    RegistryError,
    RegistryFull,
    ServerFailed,
    answer_error,
)


def body(**error: object) -> bytes:
    return json.dumps({"errors": [error]}).encode()


@pytest.mark.parametrize(
    ("status", "content", "kind"),
    [
        (507, b"", RegistryFull),
        (
            500,
            body(code="UNKNOWN", message="x", detail={"Enclosed": {"Op": "write", "Err": 28}}),
            RegistryFull,
        ),
        (500, body(code="UNKNOWN", message="x", detail="write /a: no space left on device"), RegistryFull),
        (
            403,
            body(code="DENIED", message="adding 1.5 GiB would exceed the quota of the project"),
            RegistryFull,
        ),
        (500, body(code="UNKNOWN", message="x"), ServerFailed),
        (502, b"<html>Bad gateway</html>", ServerFailed),
        (429, b"", RateLimited),
        (404, b"", NotInRegistry),
        (400, b"\xff\xfe[[[[", RegistryError),
    ],
)
def test_answers_become_errors_of_their_kind(status: int, content: bytes, kind: type[RegistryError]) -> None:
    error = answer_error("registry.example", "send a blob", status, {}, content)
    assert type(error) is kind
    assert error.message.startswith("registry.example: could not send a blob: ")
    assert error.hint


def test_what_the_registry_said_is_passed_on_without_control_characters() -> None:
    error = answer_error("r.example", "x", 400, {}, b"<h1>\x1b[31mno\x07</h1>")
    assert "no</h1>" in error.message
    assert "\x1b" not in error.message


def test_a_limit_says_until_when() -> None:
    error = answer_error("r.example", "x", 429, {"Retry-After": "60"}, b"")
    assert "until " in error.message
    assert "UTC" in error.message


@pytest.mark.parametrize(
    "after", ["99999999999999999999", "9" * 400, "\xb2", "Mon, 01 Jan 9999 00:00:00 -2359"]
)
def test_a_limit_beyond_any_calendar_says_no_date(after: str) -> None:
    error = answer_error("r.example", "x", 429, {"Retry-After": after}, b"")
    assert error.message.endswith("too many requests for now")
    assert error.hint.startswith("run this again later, ")


def test_a_limit_of_days_says_the_day() -> None:
    error = answer_error("r.example", "x", 429, {"Retry-After": str(3 * 86400)}, b"")
    day = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 3 * 86400))
    assert f"until {day} " in error.message
