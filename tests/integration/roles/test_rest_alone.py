# SPDX-License-Identifier: Apache-2.0
"""slurmrestd in a cluster without accounting: slurmdbd's part of the API, which ends it, is left out."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from tests.integration.conftest import default_variant, other_variants, running_cluster
from tests.integration.roles.rest_api import Rest
from tests.ports import free_port

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", params=[default_variant(), *other_variants()])
def rest(request: pytest.FixtureRequest) -> Iterator[Rest]:
    """A cluster with a REST API and no accounting."""
    file = f"rest: {{port: {free_port()}}}\nnode_sets: [{{name: worker, count: 1}}]\n"
    with running_cluster("rest-alone", request.param, text=file) as running:
        yield Rest(running)


def test_it_answers_of_jobs(rest: Rest) -> None:
    answer = rest.ask("jobs", rest.token())
    assert answer.status == 200
    assert "jobs" in answer.document


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_connections_that_are_left_open_keep_nobody_out(rest: Rest, said: bytes) -> None:
    """slurmrestd serves 124."""
    token, where = rest.token(), urlsplit(rest.url)
    with ExitStack() as held:
        for _ in range(130):
            one = socket.create_connection((where.hostname, where.port), timeout=30)
            held.enter_context(one).sendall(said)
        assert rest.ask("jobs", token).status == 200
