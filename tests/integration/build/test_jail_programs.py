# SPDX-License-Identifier: Apache-2.0
"""What is in the image of the jail: a login shell's programs, and no runtime for GPUs that no node has."""

from __future__ import annotations

import os

import pytest

from cellblock.build import BuildRequest, build_images
from cellblock.events import Events
from tests.integration import trees
from tests.integration.archive import HAS_A_MIRROR
from tests.integration.conftest import default_variant

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root"),
    HAS_A_MIRROR,
]
EXPECTED = [
    "man",
    "vi",
    "nano",
    "rsync",
    "git",
    "wget",
    "tmux",
    "file",
    "ip",
    "bzip2",
    "xz",
    "zip",
    "unzip",
    "strace",
    "less",
]
# AMD's runtime, and the compiler that it brings: UCX's module for AMD's GPUs asks for them.
UNWANTED = ("libamdhip64", "libhsa-runtime64", "libhsakmt", "libLLVM", "libz3")


def test_the_jail_has_a_login_shells_programs_and_no_runtime_of_amds_gpus() -> None:
    request = BuildRequest(("jail",), default_variant(), load=("jail",))
    image = build_images(request, Events()).images["jail"]
    with trees.buildah_root(image.id) as root:
        folders = [root / "usr/bin", root / "usr/sbin"]
        missing = [name for name in EXPECTED if not any(os.path.lexists(folder / name) for folder in folders)]
        libraries = {path.name for path in root.glob("usr/lib/*/lib*.so*")}
    assert missing == []
    assert len(libraries) > 100
    assert sorted(name for name in libraries if name.startswith(UNWANTED)) == []
