# SPDX-License-Identifier: Apache-2.0
"""What `up` does before there is a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cellblock.cluster import ClusterSpec
from cellblock.cluster.facts import state
from cellblock.cluster.up import assemble_jail
from cellblock.cluster.up_request import volume_path
from cellblock.errors import CellblockError
from cellblock.events import Event, Events, StepStarted


@pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps the owners of its files: needs root")
def test_an_assembly_that_failed_leaves_nothing_of_the_cluster(
    spec: Callable[..., ClusterSpec], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "etc").mkdir(parents=True)
    (source / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")

    def change(event: Event) -> None:
        if isinstance(event, StepStarted) and event.step == "read and write":
            assert volume_path("test").is_dir()
            (source / "etc/passwd").write_text("changed\n")

    events = Events()
    events.subscribe(change)
    with pytest.raises(CellblockError, match="source changed while it was read"):
        assemble_jail(str(source), spec(volume=volume_path("test")), events)
    assert not state.folder("test").exists()
