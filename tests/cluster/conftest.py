# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of clusters: specifications that need no image or volume, and cluster files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.cluster import ClusterSpec, SlurmVariant, local, shell
from cellblock.cluster.configuration import ssh_keys
from cellblock.cluster.definition.cluster_file import ClusterFile, Rest, load_cluster_file
from cellblock.cluster.up_request import UpRequest, cluster_file
from tests import ports
from tests.cluster.fake_engine import FakeContainer, FakeEngine

PLUGINS = "/usr/lib/x86_64-linux-gnu/slurm-wlm"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own."""
    monkeypatch.setenv("CELLBLOCK_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture(autouse=True)
def short_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest RSA keys that ssh-keygen makes: one of 3072 bits takes half a second, and none is used."""
    kinds = {name: (*kind[:1], "-b", "1024") for name, kind in ssh_keys.HOST_KEYS.items() if kind[0] == "rsa"}
    monkeypatch.setattr(ssh_keys, "HOST_KEYS", {**ssh_keys.HOST_KEYS, **kinds})


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A volume with the least that says it holds a jail of Slurm 24.11."""
    etc = tmp_path / "volume" / "root" / "etc"
    (etc / "cellblock").mkdir(parents=True)
    (etc / "passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (etc / "cellblock" / "jail-release").write_text("VARIANT=debian13\nSLURM_RELEASE=24.11\n")
    return tmp_path / "volume"


def with_rest(spec: ClusterSpec, **fields: int) -> ClusterSpec:
    """`spec` with a REST API."""
    images = {**spec.images, "rest": "localhost/cellblock/rest:debian13"}
    return replace(spec, file=spec.file.model_copy(update={"rest": Rest(**fields)}), images=images)


@pytest.fixture
def spec(volume: Path) -> Callable[..., ClusterSpec]:
    """Makes a specification; `release` and any field of it can be given."""

    def make(release: str = "24.11", variant: str = "debian13", **fields: object) -> ClusterSpec:
        options = {
            key: fields.pop(key) for key in ("name", "workers", "ssh_port", "jail_root") if key in fields
        }
        given: dict[str, object] = {
            "file": cluster_file(UpRequest(**{"name": "test", "without": ("accounting",), **options})),  # type: ignore[arg-type]
            "variant": SlurmVariant(variant, release, PLUGINS),
            "images": {
                role: f"localhost/cellblock/{role}:{variant}" for role in ("controller", "worker", "login")
            },
            "volume": volume,
            **fields,
        }
        return ClusterSpec(**given)  # type: ignore[arg-type]

    return make


@pytest.fixture
def free_port() -> int:
    return ports.free_port()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """An engine in which slurmctld answers and all workers are idle."""

    def answer(container: FakeContainer, command: list[str]) -> tuple[int, str]:
        cluster = container.name.removesuffix("-controller")
        names = [worker.name.removeprefix(f"{cluster}-") for worker in fake.workers(cluster)]
        line = "{}|idle|0/2/0/2|none\n" if "%N|" in command[-1] else "{} idle\n"
        return 0, "".join(line.format(name) for name in names) if command[0] == "sinfo" else ""

    fake = FakeEngine(on_exec=answer)
    for variant in ("debian12", "debian13"):
        for role in ("controller", "worker", "login"):
            fake.image_ids[f"localhost/cellblock/{role}:{variant}"] = f"sha256:{role}-{variant}"

    @contextmanager
    def connect(name: str) -> Iterator[FakeEngine]:
        yield fake

    monkeypatch.setattr(local, "connect", connect)
    monkeypatch.setattr(shell, "connect", connect)
    return fake


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], ClusterFile]:
    """The cluster file of a text."""

    def of(text: str) -> ClusterFile:
        path = tmp_path / "cluster.yaml"
        path.write_text(text)
        return load_cluster_file(path)

    return of
