# SPDX-License-Identifier: Apache-2.0
"""A cache directory in which NVIDIA's enroot has left layers."""

from __future__ import annotations

from tests.enroot.cache.conftest import sha256
from tests.enroot.cache.test_import import Importer, Registry, program, registry, user
from tests.enroot.registry.images import make_image

__all__ = ("program", "registry", "user")


def test_layers_of_nvidias_enroot_are_neither_used_nor_touched(user: Importer, registry: Registry) -> None:
    """They lie right in the directory, with a digest for a name, and hold something else than it says."""
    image = registry.push("lab/x:1", make_image((100_000,)))
    user.store.mkdir(parents=True, exist_ok=True)
    old = [user.store / blob.digest.removeprefix("sha256:") for blob in (image.config, *image.layers)]
    for path in old:
        path.write_bytes(b"compressed anew")
    before = [path.stat() for path in old]
    user.imported(registry.uri("lab/x:1"), "a.sqsh")
    for command in (["ls"], ["verify", "--repair"], ["prune", "--all"]):
        assert user("cache", *command).returncode == 0
    assert [path.stat() for path in old] == before
    user.imported(registry.uri("lab/x:1"), "b.sqsh")
    assert sha256(user.home / "a.sqsh") == sha256(user.home / "b.sqsh")
