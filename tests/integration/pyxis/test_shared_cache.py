# SPDX-License-Identifier: Apache-2.0
"""The cache of all users, as the jail's image brings it: layers come once, an image once for its user."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.enroot.registry.images import Image, Pusher
from tests.integration.jobs import home
from tests.integration.local_cluster import Done
from tests.integration.pyxis.conftest import LAYER, Containers
from tests.integration.pyxis.registry_image import image
from tests.integration.registry import running_registry
from tests.integration.registry_proxy import Proxy, running_proxy

pytestmark = pytest.mark.integration
CONFIGURATION = "opt/counted-registries.conf"
FRESH = "enroot cache prune --all --all-users --force; rm -rf /home/*/.cache/enroot /root/.cache/enroot"


@dataclass(frozen=True)
class Counted:
    """A registry whose requests are counted; two users of the jail."""

    containers: Containers
    proxy: Proxy
    image: Image
    other: str = "bob"

    @property
    def name(self) -> str:
        return f"{self.proxy.host}#team/test:1"

    def run(self, *words: str, user: str | None = None, **variables: str) -> Done:
        settings = {"CONTAINERS_REGISTRIES_CONF": f"/{CONFIGURATION}", **variables}
        return self.containers.run(f"--container-image={self.name}", *words, user=user, **settings)

    def forget(self) -> None:
        """No cache has anything, and no request was made."""
        self.containers.cluster.jail("sh", "-c", FRESH).ok()
        self.proxy.log.clear()

    @property
    def layers(self) -> int:
        """How often the layer was fetched."""
        return self.proxy.count(f"GET .*/blobs/{self.image.layers[0].digest}")


@pytest.fixture(scope="module")
def counted(
    containers: Containers, gateway: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Counted]:
    cluster = containers.cluster
    cluster.add_user(Counted.other)
    tar = (cluster.root / LAYER.lstrip("/")).read_bytes()
    with (
        running_registry(tmp_path_factory.mktemp("counted")) as registry,
        running_proxy(registry.host, gateway) as proxy,
    ):
        pushed = Pusher(f"http://{registry.host}", "team/test").image(image(tar, docker=True), "1")
        allow = f'[[registry]]\nlocation = "{proxy.host}"\ninsecure = true\n'
        (cluster.root / CONFIGURATION).write_text(allow)
        yield Counted(containers, proxy, pushed)


def test_layers_come_once_and_an_image_of_ones_own_is_made_once(counted: Counted) -> None:
    """ada on node 1; on node 2, where she asks for the tag and no more; bob on node 2, who has her layers"""
    counted.forget()
    where = ("sh", "-c", "echo $SLURMD_NODENAME $WHERE")
    assert counted.run("-wworker-1", *where).ok() == "worker-1 registry\n"
    assert counted.layers == 1
    counted.proxy.log.clear()
    assert counted.run("-wworker-2", *where).ok() == "worker-2 registry\n"
    assert [seen.method for seen in counted.proxy.seen] == ["HEAD"]
    assert counted.run("-wworker-2", *where, user=counted.other).ok() == "worker-2 registry\n"
    assert counted.layers == 0
    assert counted.containers.leftovers() == []


@pytest.mark.parametrize(("cache", "times"), [("shared", 1), ("user", 1), ("node", 2)])
def test_nodes_and_tasks_of_a_step_fetch_once_a_cache(counted: Counted, cache: str, times: int) -> None:
    """two nodes, two tasks each; with caches of the nodes' own each of them fetches, once"""
    variables = {
        "shared": {},
        "user": {"ENROOT_SHARED_CACHE_PATH": ""},
        "node": {"ENROOT_SHARED_CACHE_PATH": "", "XDG_CACHE_HOME": "/tmp"},
    }
    counted.forget()
    tasks = ("-N2", "-n4", "--overcommit")
    done = counted.run(*tasks, "sh", "-c", "echo $KIND", **variables[cache])
    assert done.ok().split() == ["docker"] * 4
    assert counted.layers == times
    assert done.err.count("pyxis: imported docker image: ") == 1


def test_nodes_of_a_named_container_fetch_once(counted: Counted) -> None:
    counted.forget()
    named = ("--container-name=counted:create", "-N2", "-n4", "--overcommit")
    try:
        node_local = {"ENROOT_SHARED_CACHE_PATH": "", "XDG_CACHE_HOME": "/tmp"}
        assert counted.run(*named, "sh", "-c", "echo $KIND", **node_local).ok().split() == ["docker"] * 4
        assert counted.layers == 1
    finally:
        remove = ("enroot", "remove", "--force", "pyxis_counted")
        counted.containers.cluster.jail(*remove, user=counted.containers.user)


def test_what_root_keeps_is_mounted_by_all_and_stays_while_it_runs(counted: Counted) -> None:
    """no copy is made of it; trimmed by force meanwhile, it is still readable"""
    counted.forget()
    cluster = counted.containers.cluster
    settings = ("env", f"CONTAINERS_REGISTRIES_CONF=/{CONFIGURATION}")
    path = cluster.jail(*settings, "enroot", "cache", "get", f"docker://{counted.name}").ok().strip()
    assert path.startswith("/var/cache/enroot/users/0/images/")
    counted.proxy.log.clear()
    folder = home(cluster, counted.other)
    (folder / "seen").unlink(missing_ok=True)
    script = "while [ ! -e /mnt/seen ]; do sleep 0.1; done; cat /usr/bin/* | wc -c"
    words = (f"--container-mounts=/home/{counted.other}:/mnt", "sh", "-c", script)
    outcome: list[Done] = []

    def entries() -> list[dict[str, object]]:
        text = cluster.jail("enroot", "cache", "ls", "--json", "--all-users").ok()
        return [entry for entry in json.loads(text)["entries"] if entry["kind"] == "image"]

    runner = threading.Thread(target=lambda: outcome.append(counted.run(*words, user=counted.other)))
    runner.start()
    try:
        cluster.wait_until("it is in use", lambda: any(entry["in_use"] for entry in entries()))
        assert [(entry["owner"], entry["in_use"]) for entry in entries()] == [(0, True)]
        cluster.jail("enroot", "cache", "prune", "--all", "--all-users").ok()
        assert len(entries()) == 1
        cluster.jail("enroot", "cache", "prune", "--all", "--all-users", "--force").ok()
        assert entries() == []
    finally:
        (folder / "seen").touch()
        runner.join()
    assert int(outcome[0].ok()) > 100_000
    assert [seen.method for seen in counted.proxy.seen] == ["HEAD"]
    (folder / "seen").unlink()
