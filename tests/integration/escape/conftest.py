# SPDX-License-Identifier: Apache-2.0
"""Fixture for the escape tests: a cluster whose workers have every capability, removed afterwards.

It has the default variant, or the one that a test's parameter names.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.conftest import running_cluster
from tests.integration.escape.arena import Arena, open_arena, patch_workers


@pytest.fixture(scope="package")
def arena(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with pytest.MonkeyPatch.context() as patch:
        patch_workers(patch)
        with (
            running_cluster("escape", getattr(request, "param", None), "operator") as cluster,
            open_arena(cluster, tmp_path_factory.mktemp("escape")) as arena,
        ):
            yield arena
