# SPDX-License-Identifier: Apache-2.0
"""The challenge of a registry (WWW-Authenticate) is understood."""

from __future__ import annotations

import pytest

from cellblock.oci.registry.authorization import Challenge


@pytest.mark.parametrize(
    ("header", "scheme", "parameters"),
    [
        ('Basic realm="a, b"', "basic", {"realm": "a, b"}),
        (
            'Bearer realm="https://t.example/t",service="s",scope="repository:a:pull,push repository:b:pull"',
            "bearer",
            {
                "realm": "https://t.example/t",
                "service": "s",
                "scope": "repository:a:pull,push repository:b:pull",
            },
        ),
        ('Basic realm="x", Bearer realm="https://t.example",service=s', "bearer", {"service": "s"}),
        ('Negotiate, Basic realm="x \\"y\\""', "basic", {"realm": 'x "y"'}),
        ("bearer realm=https://t.example/token", "bearer", {"realm": "https://t.example/token"}),
    ],
)
def test_a_challenge_is_understood(header: str, scheme: str, parameters: dict[str, str]) -> None:
    challenge = Challenge.of_header(header)
    assert challenge is not None
    assert challenge.scheme == scheme
    assert parameters.items() <= challenge.parameters.items()


@pytest.mark.parametrize("header", ["", "Negotiate", "Digest realm=x, nonce=y"])
def test_other_ways_to_authenticate_are_none(header: str) -> None:
    assert Challenge.of_header(header) is None
