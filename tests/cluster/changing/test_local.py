# SPDX-License-Identifier: Apache-2.0
"""Starting and stopping: all or nothing, twice is once, and every refusal says why."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from docker.errors import APIError

from cellblock.cluster import ClusterSpec, ClusterStatus, local, shell_argv, start, status, stop
from cellblock.cluster.changing import readiness
from cellblock.cluster.down import delete_unused, take_down
from cellblock.cluster.facts import state as cluster_state
from cellblock.errors import CellblockError
from cellblock.events import Event, Events, Message, SubjectState
from tests.cluster.fake_engine import FakeContainer, FakeEngine
from tests.deep_tree import make_deep

Make = Callable[..., ClusterSpec]


@pytest.fixture
def seen() -> list[Event]:
    return []


@pytest.fixture
def events(seen: list[Event]) -> Events:
    made = Events()
    made.subscribe(seen.append)
    return made


def names(engine: FakeEngine) -> list[str]:
    return sorted(container.name for container in engine.made)


def test_a_cluster_starts_and_is_recorded(
    spec: Make, engine: FakeEngine, events: Events, free_port: int
) -> None:
    one: ClusterStatus = start(spec(ssh_port=free_port), events)
    assert one.ready
    assert one.changed
    assert names(engine) == [
        "cellblock-test-controller",
        "cellblock-test-login",
        "cellblock-test-worker-1",
        "cellblock-test-worker-2",
    ]
    assert [node.name for node in one.nodes] == ["worker-1", "worker-2"]
    assert one.ssh_key.is_file()
    assert status("test").variant == "debian13"


def test_containers_get_their_capabilities_and_are_not_privileged(
    spec: Make, engine: FakeEngine, events: Events, free_port: int
) -> None:
    start(spec(ssh_port=free_port), events)
    for container in engine.made:
        assert container.options["cap_drop"] == ["ALL"]
        assert container.options["cap_add"]
        assert "privileged" not in container.options


def test_a_second_start_changes_nothing(
    spec: Make, engine: FakeEngine, events: Events, seen: list[Event], free_port: int
) -> None:
    start(spec(ssh_port=free_port), events)
    before = list(engine.made)
    again = start(spec(ssh_port=free_port), events)
    assert not again.changed
    assert engine.made == before
    assert [event.state for event in seen if isinstance(event, SubjectState)] == ["done", "cached"]


def test_another_image_of_a_role_starts_those_containers_anew(
    spec: Make, engine: FakeEngine, events: Events, free_port: int
) -> None:
    start(spec(ssh_port=free_port), events)
    others = [container for container in engine.made if container not in engine.workers("cellblock-test")]
    workers = engine.workers("cellblock-test")
    engine.image_ids["localhost/cellblock/worker:debian13"] = "sha256:newer"
    assert start(spec(ssh_port=free_port), events).changed
    assert len(engine.made) == 4
    assert all(container in engine.made for container in others)
    assert not any(container in engine.made for container in workers)


def test_a_container_that_ended_is_brought_back_at_its_address(
    spec: Make, engine: FakeEngine, events: Events, free_port: int
) -> None:
    start(spec(ssh_port=free_port), events)
    before = engine.addresses()
    assert len(set(before.values())) == 4
    assert all(address and address.startswith("10.9.8.") for address in before.values())
    hardware = engine.hardware_addresses()
    assert len({one for one in hardware.values() if one and one.startswith("02:42:0a:09:08:")}) == 4
    engine.made[0].status = "exited"
    assert start(spec(ssh_port=free_port), events).ready
    assert (engine.addresses(), engine.hardware_addresses()) == (before, hardware)


def test_docker_is_asked_for_none(
    spec: Make, engine: FakeEngine, events: Events, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "copy_to_docker", lambda *ignored: None)
    start(spec(ssh_port=free_port, engine="docker"), events)
    assert {*engine.addresses().values(), *engine.hardware_addresses().values()} == {None}


def test_a_cluster_of_another_variant_is_refused_naming_both(
    spec: Make, engine: FakeEngine, events: Events, volume: Path, free_port: int
) -> None:
    start(spec(ssh_port=free_port), events)
    (volume / "root" / "etc" / "cellblock" / "jail-release").write_text("SLURM_RELEASE=22.05\n")
    with pytest.raises(CellblockError, match=r"variant debian13.* debian12 was asked for") as caught:
        start(spec("22.05", "debian12", ssh_port=free_port), events)
    assert "build.py down" in caught.value.hint
    assert len(engine.made) == 4


def test_a_port_in_use_is_refused_naming_port_and_holder(
    spec: Make, engine: FakeEngine, events: Events
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with pytest.raises(CellblockError, match=rf"port {port} .* in use by .*pid") as caught:
            start(spec(ssh_port=port), events)
    assert "--ssh-port" in caught.value.hint
    assert not engine.made


def test_a_port_of_another_cluster_is_refused_naming_that_cluster(
    spec: Make, engine: FakeEngine, events: Events, free_port: int
) -> None:
    start(spec(ssh_port=free_port), events)
    broken = cluster_state.folder("broken")
    broken.mkdir()
    (broken / "state.json").write_text("{")
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", free_port))
        server.listen()
        with pytest.raises(CellblockError, match=r"is in use by cluster test\n") as caught:
            start(spec(name="second", ssh_port=free_port), events)
    assert "`build.py down --name test`" in caught.value.hint


def test_a_volume_without_a_jail_is_refused(
    spec: Make, engine: FakeEngine, events: Events, volume: Path
) -> None:
    shutil.rmtree(volume / "root")
    with pytest.raises(CellblockError, match="holds no jail") as caught:
        start(spec(), events)
    assert "jail assemble" in caught.value.hint


@pytest.mark.parametrize("text", ["SLURM_RELEASE=22.05\n", "nonsense\n", None])
def test_a_jail_of_another_release_is_refused_naming_both(
    spec: Make, engine: FakeEngine, events: Events, volume: Path, text: str | None
) -> None:
    file = volume / "root" / "etc" / "cellblock" / "jail-release"
    file.unlink()
    if text is not None:
        file.write_text(text)
    with pytest.raises(CellblockError, match=r"the jail in .* is of Slurm .* images are of 24\.11"):
        start(spec(), events)
    assert not engine.made


def test_the_jails_release_is_not_followed_out_of_it(volume: Path, tmp_path: Path) -> None:
    file = volume / "root" / "etc" / "cellblock" / "jail-release"
    (tmp_path / "elsewhere").write_text("SLURM_RELEASE=24.11\n")
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    assert local.jail_release(file) is None


def test_an_image_that_was_not_built_is_named(spec: Make, engine: FakeEngine, events: Events) -> None:
    del engine.image_ids["localhost/cellblock/login:debian13"]
    with pytest.raises(CellblockError, match="no image localhost/cellblock/login:debian13") as caught:
        start(spec(), events)
    assert "build.py build" in caught.value.hint


def assert_nothing_left(engine: FakeEngine) -> None:
    assert not engine.made
    assert not engine.nets
    assert cluster_state.read("test") is None
    assert not (cluster_state.folder("test") / "secrets").exists()


def test_a_daemon_that_ends_takes_the_start_with_it_and_its_last_lines_are_shown(
    spec: Make, engine: FakeEngine, events: Events, free_port: int
) -> None:
    def fail(container: FakeContainer) -> None:
        if container.name.endswith("worker-2"):
            container.status = "exited"

    engine.on_start = fail
    with pytest.raises(CellblockError, match="cellblock-test-worker-2 ended") as caught:
        start(spec(ssh_port=free_port), events)
    assert "last words of cellblock-test-worker-2" in caught.value.message
    assert "last words of cellblock-test-controller" not in caught.value.message
    assert_nothing_left(engine)


def test_an_engine_that_refuses_a_container_leaves_nothing(
    spec: Make, engine: FakeEngine, events: Events, free_port: int
) -> None:
    def fail(container: FakeContainer) -> None:
        if container.name.endswith("login"):
            raise APIError("cannot set rlimits")

    engine.on_start = fail
    with pytest.raises(CellblockError, match=r"could not be started: .*cannot set rlimits"):
        start(spec(ssh_port=free_port), events)
    assert_nothing_left(engine)


def test_ctrl_c_leaves_nothing(spec: Make, engine: FakeEngine, events: Events, free_port: int) -> None:
    def interrupt(container: FakeContainer, command: list[str]) -> tuple[int, str]:
        raise KeyboardInterrupt

    engine.on_exec = interrupt
    with pytest.raises(KeyboardInterrupt):
        start(spec(ssh_port=free_port), events)
    assert_nothing_left(engine)


def test_workers_that_never_come_are_waited_for_with_a_bound(
    spec: Make, engine: FakeEngine, events: Events, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.on_exec = lambda container, command: (0, "worker-1 idle\nworker-2 down*\n")
    monkeypatch.setattr(readiness, "READY_S", 0.2)
    with pytest.raises(
        CellblockError, match=r"still waiting for 2 workers: worker-1 is idle; worker-2 is down\*"
    ):
        start(spec(ssh_port=free_port), events)
    assert_nothing_left(engine)


def test_a_login_node_whose_sshd_does_not_listen_is_not_ready(
    spec: Make, engine: FakeEngine, events: Events, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = engine.on_exec
    engine.on_exec = lambda container, command: (
        (1, "") if container.name.endswith("login") else answer(container, command)
    )
    monkeypatch.setattr(readiness, "READY_S", 0.2)
    with pytest.raises(CellblockError, match="waiting for sshd on login"):
        start(spec(ssh_port=free_port), events)
    assert_nothing_left(engine)


def test_what_a_killed_start_left_is_cleared_by_the_next(
    spec: Make, engine: FakeEngine, events: Events, free_port: int
) -> None:
    start(spec(ssh_port=free_port), events)
    (cluster_state.folder("test") / "state.json").unlink()
    assert start(spec(ssh_port=free_port), events).ready
    assert len(engine.made) == 4
    assert len(engine.nets) == 1


def test_without_cgroup_v2_there_is_a_warning_and_no_failure(
    spec: Make,
    engine: FakeEngine,
    events: Events,
    seen: list[Event],
    free_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cellblock.cluster.facts.host.cgroup_mode", lambda: "disabled")
    start(spec(ssh_port=free_port), events)
    warnings = [event.text for event in seen if isinstance(event, Message) and event.level == "warning"]
    assert len(warnings) == 1
    assert "CgroupPlugin=disabled" in warnings[0]


def test_stopping_removes_everything_but_the_volume(
    spec: Make, engine: FakeEngine, events: Events, volume: Path, free_port: int
) -> None:
    start(spec(ssh_port=free_port), events)
    assert stop("test", events)
    assert_nothing_left(engine)
    assert (volume / "root" / "etc" / "passwd").exists()
    assert not stop("test", events)


def test_taking_down_twice_says_what_ran_and_purging_leaves_no_folder(
    spec: Make, engine: FakeEngine, events: Events, free_port: int
) -> None:
    start(spec(ssh_port=free_port), events)
    assert take_down("test", events, purge=False)
    assert not take_down("test", events, purge=False)
    take_down("test", events, purge=True)
    assert not cluster_state.folder("test").exists()
    with pytest.raises(CellblockError, match="there is no cluster test"):
        take_down("test", events, purge=True)
    assert not cluster_state.folder("test").exists()


def test_purging_removes_what_users_made_however_deep(
    spec: Make, engine: FakeEngine, events: Events, free_port: int
) -> None:
    start(spec(ssh_port=free_port), events)
    # Where `up` puts the jail's volume, unless it is told another one.
    (cluster_state.folder("test") / "jail/root").mkdir(parents=True)
    make_deep(cluster_state.folder("test") / "jail/root", 20000)
    take_down("test", events, purge=True)
    assert not cluster_state.folder("test").exists()


def test_what_an_up_that_failed_left_goes_unless_another_started_the_cluster(
    spec: Make, engine: FakeEngine, events: Events, free_port: int
) -> None:
    start(spec(ssh_port=free_port), events)
    delete_unused("test", events)
    assert status("test").ready
    stop("test", events)
    delete_unused("test", events)
    assert not cluster_state.folder("test").exists()


def test_hints_mean_the_cluster_that_they_are_about(
    spec: Make, engine: FakeEngine, events: Events, free_port: int
) -> None:
    start(spec(ssh_port=free_port), events)
    with pytest.raises(CellblockError) as caught:
        start(spec(ssh_port=free_port, engine="docker"), events)
    assert "`build.py down --name test`" in caught.value.hint
    with pytest.raises(CellblockError) as caught:
        status("nowhere")
    assert caught.value.message == "there is no cluster nowhere; clusters of this machine: test"
    assert caught.value.hint == "start it: `build.py up --name nowhere`"


def test_stopping_one_cluster_leaves_another_alone(
    spec: Make, engine: FakeEngine, events: Events, free_port: int
) -> None:
    start(spec(ssh_port=free_port), events)
    start(spec(name="test-2", ssh_port=free_port), events)
    stop("test", events)
    assert all(name.startswith("cellblock-test-2-") for name in names(engine))
    assert [network.name for network in engine.nets] == ["cellblock-test-2"]


@pytest.mark.parametrize("ask", [status, shell_argv])
def test_a_cluster_that_does_not_exist_is_named(ask: Callable[[str], object]) -> None:
    with pytest.raises(CellblockError, match="there is no cluster nowhere") as caught:
        ask("nowhere")
    assert "build.py up" in caught.value.hint


def test_the_shell_is_in_the_jail_on_the_login_node(
    spec: Make, engine: FakeEngine, events: Events, free_port: int
) -> None:
    start(spec(ssh_port=free_port), events)
    enter = ["cellblock-test-login", "jail-enter", "--user", "root"]
    assert shell_argv("test")[-6:] == ["exec", "-it", *enter]
    told = ["exec", "-i", *enter, "--", "a", "b c"]
    assert shell_argv("test", ["a", "b c"], terminal=False)[-9:] == told
    assert shell_argv("test", user="ada")[-6:] == ["exec", "-it", *enter[:-1], "ada"]


def test_the_shell_of_an_administrator_is_outside_on_the_controller(
    spec: Make, engine: FakeEngine, events: Events, free_port: int
) -> None:
    start(spec(ssh_port=free_port), events)
    argv = shell_argv("test", admin=True)
    assert argv[argv.index("exec") + 1 :] == ["-it", "cellblock-test-controller", "bash", "--login"]
    argv = shell_argv("test", ["sinfo", "-h"], admin=True, terminal=False)
    assert argv[argv.index("exec") + 1 :] == ["-i", "cellblock-test-controller", "sinfo", "-h"]
