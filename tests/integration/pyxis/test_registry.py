# SPDX-License-Identifier: Apache-2.0
"""Images of a real registry on the cluster's network: imported, found again, refused with a reason."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.enroot.registry.images import Image, Pusher
from tests.integration.jobs import home
from tests.integration.pyxis.conftest import IMAGE, Containers
from tests.integration.pyxis.registry_image import image
from tests.integration.registry import RunningRegistry, running_registry

pytestmark = pytest.mark.integration
AT_ONCE = int(os.environ.get("CELLBLOCK_PYXIS_AT_ONCE", "50"))


@pytest.fixture(scope="module")
def pushed(hub: RunningRegistry, tar: bytes) -> dict[str, Image]:
    """team/test:docker and team/test:oci"""
    pusher = Pusher(f"http://{hub.host}", "team/test")
    return {kind: pusher.image(image(tar, docker=kind == "docker"), kind) for kind in ("docker", "oci")}


@pytest.mark.every_slurm
@pytest.mark.parametrize("kind", ["docker", "oci"])
def test_an_image_of_a_registry(
    containers: Containers, hub: RunningRegistry, pushed: dict[str, Image], kind: str
) -> None:
    """by tag with schema 2 and gzip, by digest with OCI and zstd"""
    reference = f"team/test:{kind}" if kind == "docker" else f"team/test@{pushed[kind].digest}"
    name = f"{hub.host}#{reference}"
    ask = ("sh", "-c", 'echo "$WHERE $KIND $PWD $LC_ALL"; cat /etc/os-release')
    done = containers.run("-N2", "-l", f"--container-image={name}", *ask)
    assert done.ok().count(f"registry {kind} /work dir") == 2
    assert done.out.count("a test image") == 2
    assert done.err.count(f"pyxis: importing docker image: {name}\n") == 1
    assert done.err.count(f"pyxis: imported docker image: {name}\n") == 1
    assert containers.leftovers() == []


def test_root_imports_too(containers: Containers, hub: RunningRegistry, pushed: dict[str, Image]) -> None:
    done = containers.run(f"--container-image={hub.host}#team/test:docker", "id", user="root")
    assert "uid=0" in done.ok()


def test_many_at_once(containers: Containers, hub: RunningRegistry, pushed: dict[str, Image]) -> None:
    """steps of one image, imported before or not: each runs, and nothing is left"""
    start = f"srun -n1 --overlap --container-image={hub.host}#team/test:oci sh -c 'echo $KIND'"
    script = f"""i=0; while [ $i -lt {AT_ONCE} ]; do {start} & i=$((i + 1)); done; wait"""
    done = containers.script(script, "-n1", "-wworker-1")
    assert done.out.split() == ["oci"] * AT_ONCE, done.err[-3000:]
    assert containers.leftovers() == []


def test_what_is_not_there_is_told_first(containers: Containers, hub: RunningRegistry) -> None:
    name = f"{hub.host}#team/none:1"
    done = containers.run(f"--container-image={name}", "true")
    lines = [line.partition("pyxis: ")[2] for line in done.err.splitlines() if "pyxis: " in line]
    failed = lines.index(f"failed to import docker image: {name}")
    assert hub.host in lines[failed + 1]
    assert lines.index("printing enroot log file:") > failed + 1
    assert done.status == 1


@pytest.mark.every_slurm
def test_nodes_count_images_by_what_became_of_them(
    containers: Containers, hub: RunningRegistry, tar: bytes
) -> None:
    Pusher(f"http://{hub.host}", "team/counted").image(image(tar, docker=False), "1")

    def counted() -> dict[str, int]:
        lines = containers.cluster.on("worker-1", "jail-node-counters").ok().splitlines()
        found = (re.fullmatch(r'cellblock_image_(\w+)_total.*"(.*)"} (.*)', line) for line in lines)
        return {f"{each[1]} {each[2]}": int(each[3]) for each in found if each}

    def more() -> dict[str, int]:
        return {kind: value - before[kind] for kind, value in counted().items()}

    before = counted()
    for name in ("counted:1", "counted:1", "none:1"):
        asked = f"--container-image={hub.host}#team/{name}"
        containers.run("-n2", "--overcommit", "-wworker-1", asked, "true")
    # A step is counted when its slurmstepd ends, which srun does not wait for.
    kinds = ("imports fetched", "imports cached", "imports failed")
    containers.cluster.wait_until("all are counted", lambda: all(more()[kind] for kind in kinds), 30)
    assert [more()[kind] for kind in kinds] == [1, 1, 1]
    assert more()["imported_bytes fetched"] == more()["imported_bytes cached"] > 4096


@pytest.fixture
def closed(gateway: str, tmp_path: Path) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path, address=gateway, password=True) as running:
        yield running


def test_who_is_not_known_is_told_where_was_looked(containers: Containers, closed: RunningRegistry) -> None:
    allow = home(containers.cluster, containers.user) / "closed.conf"
    allow.write_text(f'[[registry]]\nlocation = "{closed.host}"\ninsecure = true\n')
    settings = {"CONTAINERS_REGISTRIES_CONF": f"/home/{containers.user}/closed.conf"}
    done = containers.run(f"--container-image={closed.host}#a/b", "true", **settings)
    before_log = done.err.partition("printing enroot log file:")[0]
    assert "were looked for in" in before_log
    assert ".credentials" in before_log
    assert "next: put" in before_log
    assert done.status == 1


def test_a_file_without_a_slash_is_told_to_be_one(containers: Containers) -> None:
    name = IMAGE.removeprefix("/opt/")
    done = containers.run("-D/opt", f"--container-image={name}", "true", ENROOT_CACHE_OFFLINE="yes")
    assert f"pyxis: failed to import docker image: {name}\n" in done.err
    assert f"say --container-image=./{name}\n" in done.err
