# SPDX-License-Identifier: Apache-2.0
"""A registry as the cache that builds on several machines share."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock.errors import UsageError
from cellblock.events import Event, Events, Message
from cellblock.oci.cache import RegistryCache
from cellblock.oci.layout import Layout
from cellblock.oci.model import LAYER_TAR, Descriptor
from cellblock.oci.registry import ConnectionOptions
from tests.integration.registry import PASSWORD, USER, repository_of, running_registry
from tests.integration.registry_proxy import Fault, Proxy

KEY = "ab12" * 16
LAYER = b"layer" * 100_000


class Machine:
    """A machine that builds: its own layout, and the cache that it shares."""

    def __init__(self, folder: Path, repository: str, **environ: str) -> None:
        self.layout = Layout(folder)
        self.told: list[str] = []
        events = Events()
        events.subscribe(self._take)
        options = ConnectionOptions(environ={"HOME": str(folder), **environ})
        self.cache = RegistryCache(repository, self.layout, events, options)

    def _take(self, event: Event) -> None:
        if isinstance(event, Message):
            self.told.append(event.text)

    def layer(self) -> Descriptor:
        return self.layout.write(LAYER, LAYER_TAR)


@pytest.fixture
def machines(tmp_path: Path, proxy: Proxy, request: pytest.FixtureRequest) -> tuple[Machine, Machine]:
    repository = f"{proxy.host}/{repository_of(request)}"
    return Machine(tmp_path / "one", repository), Machine(tmp_path / "two", repository)


def test_a_layer_that_one_machine_made_another_has(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    record = {"title": "packages of worker", "packages": [["slurmd", "24.11.5-4"]], "seconds": 1.5}
    assert two.cache.pull_layer(KEY) is None
    assert one.cache.push_layer(KEY, one.layer(), record)
    entry = two.cache.pull_layer(KEY)
    assert entry is not None
    assert entry.record == record
    assert entry.blobs == (one.layer(),)
    assert two.layout.blob(entry.blobs[0].digest).read_bytes() == LAYER
    assert not one.told + two.told


def test_what_is_there_is_not_pushed_or_pulled_again(machines: tuple[Machine, Machine], proxy: Proxy) -> None:
    one, two = machines
    one.cache.push_layer(KEY, one.layer(), {})
    two.cache.pull_layer(KEY)
    proxy.seen.clear()
    assert one.cache.push_layer(KEY, one.layer(), {})
    assert two.cache.pull_layer(KEY) is not None
    assert proxy.uploaded() == 0
    assert proxy.count("GET .*blobs") == 1, "the record"


def test_a_key_that_begins_alike_is_another(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    one.cache.push_layer(KEY, one.layer(), {})
    assert two.cache.pull_layer(KEY[:-1] + "0") is None
    assert not two.told


def test_a_damaged_entry_is_none_and_said_and_the_others_still_serve(
    machines: tuple[Machine, Machine], proxy: Proxy
) -> None:
    one, two = machines
    layer = one.layer()
    one.cache.push_layer(KEY, layer, {})
    proxy.faults = [Fault(f"GET .*{layer.digest}", corrupt_download=True)]
    assert two.cache.pull_layer(KEY) is None
    assert not two.layout.has(layer.digest)
    assert layer.digest in two.told[0]
    assert two.cache.pull_layer(KEY) is not None


def test_a_broken_connection_is_gone_on_with(machines: tuple[Machine, Machine], proxy: Proxy) -> None:
    one, two = machines
    one.cache.push_layer(KEY, one.layer(), {})
    proxy.faults = [Fault("GET .*blobs", drop_download=5), Fault("GET .*blobs", drop_download=100_000)]
    assert two.cache.pull_layer(KEY) is not None


def test_an_absent_registry_is_told_once_and_asked_no_more(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "127.0.0.1:1/cache")
    assert machine.cache.pull_layer(KEY) is None
    assert machine.cache.pull_layer(KEY) is None
    assert len(machine.told) == 1
    assert "the shared cache 127.0.0.1:1/cache is left out" in machine.told[0]
    assert not machine.cache.push_layer(KEY, machine.layer(), {})
    assert len(machine.told) == 1


def test_a_registry_that_fails_is_told_once(machines: tuple[Machine, Machine], proxy: Proxy) -> None:
    machine, _ = machines
    proxy.faults = [Fault("", times=99, status=500)]
    assert machine.cache.pull_layer(KEY) is None
    assert machine.cache.pull_layer(KEY) is None
    assert len(machine.told) == 1


def test_missing_credentials_are_said_with_the_places(tmp_path: Path) -> None:
    with running_registry(tmp_path / "r", password=True) as registry:
        machine = Machine(tmp_path / "one", f"{registry.host}/cache")
        assert machine.cache.pull_layer(KEY) is None
        assert f"{tmp_path}/one/.docker/config.json (not there)" in machine.told[0]
        known = {"CELLBLOCK_REGISTRY_USER": USER, "CELLBLOCK_REGISTRY_PASSWORD": PASSWORD}
        machine = Machine(tmp_path / "two", f"{registry.host}/cache", **known)
        assert machine.cache.push_layer(KEY, machine.layer(), {})


def test_a_cache_that_may_only_be_read_serves(machines: tuple[Machine, Machine], proxy: Proxy) -> None:
    one, two = machines
    one.cache.push_layer(KEY, one.layer(), {})
    proxy.faults = [Fault("POST", times=99, status=403)]
    assert not two.cache.push_layer(KEY[::-1], two.layer(), {})
    assert "left out for writing" in two.told[0]
    assert two.cache.pull_layer(KEY) is not None


def test_what_names_no_repository_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no registry's host"):
        Machine(tmp_path, "cache")
