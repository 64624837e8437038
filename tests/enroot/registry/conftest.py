# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of the C client: the client as a program, a registry with images, a proxy that fails."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import c_compiling
from tests.enroot.registry.images import Image, Pusher, digest_of, make_image, make_index
from tests.integration.registry import RunningRegistry, running_registry
from tests.integration.registry_proxy import Proxy, running_proxy

SOURCES = Path(__file__).parents[3] / "native"
SECRETS = ("sesame", "mellon", "token-")
"""Words of passwords and tokens of these tests: no message may hold one."""


def make(build: Path, *targets: str) -> subprocess.CompletedProcess[str]:
    return c_compiling.make(SOURCES, build, *targets)


@pytest.fixture(scope="session")
def client_build() -> Path:
    return c_compiling.compiled(SOURCES, "fetch")


@dataclass(frozen=True)
class Client:
    """Runs the client for a user whose home is `home`."""

    program: Path
    home: Path

    def run(
        self, *words: str | Path, file_limit: int | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        limited = ["prlimit", f"--fsize={file_limit}", "--"] if file_limit is not None else []
        done = subprocess.run(
            [*limited, self.program, *words],
            capture_output=True,
            text=True,
            env={"PATH": f"{self.home}/bin:{os.environ['PATH']}", "HOME": str(self.home), **env},
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode in (0, 1), (done.returncode, done.stderr)
        for secret in SECRETS:
            assert secret not in done.stderr + done.stdout
        return done

    def digest(self, uri: str, *options: str, **env: str) -> str:
        done = self.run("digest", *options, f"docker://{uri}", **env)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def error(self, *words: str | Path, **env: str) -> str:
        """What it says when it fails, which it must."""
        done = self.run(*words, **env)
        assert done.returncode == 1, done.stdout
        assert done.stderr.startswith("[ERROR] "), done.stderr
        return done.stderr.removeprefix("[ERROR] ").strip()

    def fetch(self, uri: str, *options: str | Path, file_limit: int | None = None, **env: str) -> Fetched:
        """All layers; their digests were compared."""
        done = self.run(*options, f"docker://{uri}", file_limit=file_limit, **env)
        assert done.returncode == 0, done.stderr
        first, *layers = [json.loads(line) for line in done.stdout.splitlines()]
        return Fetched(first, layers, done.stderr)

    def write(self, name: str, text: str, mode: int = 0o600) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def credentials(self, text: str) -> Path:
        return self.write(".config/enroot/.credentials", text)

    def registries(self, text: str) -> Path:
        return self.write(".config/containers/registries.conf", text)


@dataclass(frozen=True)
class Fetched:
    image: dict[str, Any]
    layers: list[dict[str, Any]]
    """The top one first."""
    warnings: str

    def is_of(self, image: Image) -> bool:
        found = [(each["digest"], each["diff_id"]) for each in reversed(self.layers)]
        wanted = [(each.digest, id) for each, id in zip(image.layers, image.diff_ids, strict=True)]
        return found == wanted and self.image["config"] == image.config.digest


@pytest.fixture
def client(client_build: Path, tmp_path: Path) -> Client:
    (tmp_path / "home").mkdir()
    return Client(client_build / "fetch", tmp_path / "home")


@dataclass(frozen=True)
class Stock:
    """A registry, and what is in its repository team/app."""

    registry: RunningRegistry
    image: Image
    """Tag v1."""
    many: Image
    """Tag many: a dozen layers, some of megabytes."""
    variants: dict[str, Image]
    """By platform, what the tag multi leads to."""
    index: str
    """The digest of that index."""

    @property
    def host(self) -> str:
        return self.registry.host


PATH = "team/app"
PLATFORMS = ("linux/amd64", "linux/arm64", "linux/arm/v6", "linux/arm/v7")


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    with running_registry(tmp_path_factory.mktemp("stock")) as registry:
        yield filled(registry, f"http://{registry.host}")


def filled(registry: RunningRegistry, url: str) -> Stock:
    pusher = Pusher(url, PATH)
    image = pusher.image(make_image((1000, 50_000)), "v1")
    many = pusher.image(make_image([7 * 1000**number % 3_000_000 + 500 for number in range(12)]), "many")
    variants = {}
    for platform in PLATFORMS:
        _, architecture, *variant = platform.split("/")
        variants[platform] = pusher.image(make_image(architecture=architecture, variant="".join(variant)))
    index = make_index(variants)
    pusher.manifest(index, "multi")
    return Stock(registry, image, many, variants, digest_of(index.data))


@pytest.fixture
def proxies() -> Iterator[Callable[[str], Proxy]]:
    """Proxies in front of registries, which end with the test."""
    with ExitStack() as stack:
        yield lambda host: stack.enter_context(running_proxy(host))


@pytest.fixture
def proxy(proxies: Callable[[str], Proxy], stock: Stock) -> Proxy:
    """One in front of the stock."""
    return proxies(stock.host)
