# SPDX-License-Identifier: Apache-2.0
"""Where benchmarks keep what they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock.bench.harness.scratch import scratch, storage


def test_podman_takes_the_storage_of_a_scratch_folder() -> None:
    with scratch() as folder:
        variables = storage(folder)
        assert f'runroot = "{folder}/run"' in Path(variables["CONTAINERS_STORAGE_CONF"]).read_text()


def test_a_storage_that_podman_would_refuse_is_refused(tmp_path: Path) -> None:
    """podman says nothing of it, and waits 20 s for each container's end"""
    with pytest.raises(ValueError, match="podman's runroot has at most 50 characters"):
        storage(tmp_path / ("long" * 12))
