# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of pushes: registries, images, cosign and skopeo."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock.machine.host import host_release
from cellblock.oci.layout import Layout
from tests.integration.push.verifiers import Cosign, Skopeo, fetch
from tests.integration.registry import repository_of

_NO_DEBIAN = "SIGNATURES ARE NOT VERIFIED: cosign and skopeo are fetched from this machine's mirror of Debian"


@pytest.fixture(scope="session")
def cosign(tmp_path_factory: pytest.TempPathFactory) -> Cosign:
    if host_release().get("ID") != "debian":
        pytest.skip(_NO_DEBIAN)
    return Cosign(fetch(tmp_path_factory.mktemp("cosign"), "cosign", alone=True) / "usr/bin/cosign")


@pytest.fixture(scope="session")
def skopeo(tmp_path_factory: pytest.TempPathFactory) -> Skopeo:
    if host_release().get("ID") != "debian":
        pytest.skip(_NO_DEBIAN)
    return Skopeo(fetch(tmp_path_factory.mktemp("skopeo"), "skopeo", alone=False))


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "layout")


@pytest.fixture
def path(request: pytest.FixtureRequest) -> str:
    return repository_of(request)
