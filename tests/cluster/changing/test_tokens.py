# SPDX-License-Identifier: Apache-2.0
"""Tests for whom, and for how long, `build.py token` makes no token, before it asks a cluster.

tests/integration/roles/test_rest.py asks a cluster.
"""

from __future__ import annotations

import pytest

from cellblock.cluster.facts import state
from cellblock.cluster.rotating.rotation import rotate
from cellblock.cluster.tokens import make_token
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events

REST = {"rest": {"role": "rest", "rest_port": 6820}}


def keep_cluster(containers: dict[str, dict[str, object]]) -> None:
    state.folder("test").mkdir(parents=True)
    known = state.ClusterState("test", "debian13", "24.11", "podman", [], [], 2222, "/volume", containers)
    state.write(known)


def test_a_cluster_without_a_rest_api_has_no_tokens_and_the_error_says_how_to_get_them() -> None:
    keep_cluster({})
    for refused in (
        lambda: make_token("test", "ada", "1h", Events()),
        lambda: rotate("test", ["tokens"], Events()),
    ):
        with pytest.raises(CellblockError, match="no REST API") as caught:
            refused()
        assert "rest: {}" in caught.value.hint
        assert "--name test" in caught.value.hint


def test_there_is_no_cluster() -> None:
    with pytest.raises(CellblockError, match="there is no cluster nowhere"):
        make_token("nowhere", "ada", "1h", Events())


@pytest.mark.parametrize("lifetime", ["0h", "8d", "1y", "-1h", "", "1h lifespan=infinite"])
def test_lifetimes(lifetime: str) -> None:
    keep_cluster(REST)
    with pytest.raises(UsageError, match="--lifetime"):
        make_token("test", "ada", lifetime, Events())


@pytest.mark.parametrize("user", ["", "-u", "a b", "ada lifespan=infinite", "../x", "a=b", "a\nb"])
def test_names_that_no_user_has(user: str) -> None:
    keep_cluster(REST)
    with pytest.raises(UsageError, match="no name of a user"):
        make_token("test", user, "1h", Events())
