# SPDX-License-Identifier: Apache-2.0
"""What this machine gives containers."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

import pytest

from cellblock.cluster.facts import host
from tests.ports import free_port


def test_a_free_port_has_no_holder() -> None:
    assert host.port_holder(free_port()) is None


def test_the_holder_of_a_port_is_named() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        holder = host.port_holder(server.getsockname()[1])
    assert holder is not None
    assert f"(pid {os.getpid()})" in holder


@pytest.mark.parametrize(
    ("controllers", "mode"),
    [
        ("cpuset cpu io memory hugetlb pids\n", "v2"),
        ("hugetlb\n", "disabled"),  # a hybrid hierarchy leaves the others to v1
        ("", "disabled"),
        (None, "disabled"),  # v1
    ],
)
def test_cgroup_v2_counts_when_the_controllers_are_there(
    tmp_path: Path, controllers: str | None, mode: str
) -> None:
    if controllers is not None:
        (tmp_path / "cgroup.controllers").write_text(controllers)
    assert host.cgroup_mode(tmp_path) == mode


def test_limits_are_never_above_what_this_process_may_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_has_capability", lambda number: False)
    for limit in host.container_limits():
        hard = resource.getrlimit(getattr(resource, f"RLIMIT_{limit.name.upper()}"))[1]
        if hard != resource.RLIM_INFINITY:
            assert 0 <= limit.value <= hard, limit


def test_with_the_capability_limits_are_those_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_has_capability", lambda number: True)
    limits = {limit.name: limit.value for limit in host.container_limits()}
    assert limits["nofile"] == 1048576
    assert limits["memlock"] == -1


def test_a_container_leaves_numbers_of_processes_to_the_machine() -> None:
    assert 0 < host.pids_limit() <= int(Path("/proc/sys/kernel/pid_max").read_text()) // 2
