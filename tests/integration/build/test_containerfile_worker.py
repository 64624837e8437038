# SPDX-License-Identifier: Apache-2.0
"""The worker that buildah builds of the rendered Containerfile, beside the default engine's.

What differs is what docs/containerfile.md says, and nothing else.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.build import BuildRequest, build_images
from cellblock.build.containerfile import RenderRequest, rendered
from cellblock.events import Events
from tests.integration import trees
from tests.integration.archive import HAS_A_MIRROR

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root"),
    pytest.mark.skipif(
        not os.environ.get("CELLBLOCK_WORKER_BY_BUILDAH"),
        reason="minutes, which no test of a change can wait for: `python3 build.py test --thorough`",
    ),
    HAS_A_MIRROR,
]
VARIANT = "debian13"
REFERENCE = "localhost/worker-by-buildah"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where buildah has a storage of its own."""
    folder = tmp_path_factory.mktemp("by-buildah")
    conf = folder / "storage.conf"
    conf.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_STORAGE_CONF", str(conf))
        patch.setenv("BUILDAH_ISOLATION", "chroot")
        yield folder
        subprocess.run(["buildah", "rmi", "--all", "--force"], check=True, capture_output=True)


def by_buildah(folder: Path) -> dict[str, trees.Entry]:
    context = folder / "context"
    with rendered(RenderRequest(("worker",), VARIANT)) as file:
        file.write(context, Events())
    argv = ["buildah", "build", "--layers=false", "--target", "worker", "--tag", REFERENCE, str(context)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    with trees.buildah_root(REFERENCE) as root:
        return told(root)


def told(root: Path) -> dict[str, trees.Entry]:
    """All of an image's tree but what docs/containerfile.md says may differ."""
    shadow = root / "etc/shadow"
    days = [line.split(":") for line in shadow.read_text().splitlines()]
    shadow.write_text("\n".join(":".join([*line[:2], *line[3:]]) for line in days))
    sources = root / "etc/apt/sources.list"
    sources.write_text("".join(line for line in sources.open() if line.strip()))
    partial = root / "var/cache/apt/archives/partial"
    assert list(partial.iterdir()) == []
    os.chown(partial, 0, 0)
    partial.chmod(0o755)
    left_out = (".", "var/lib/apt/extended_states")
    return {
        path: entry
        for path, entry in trees.entries(root).items()
        if path not in left_out and not path.startswith("dev/") and not path.endswith(".pyc")
    }


def test_what_differs_is_what_the_documentation_says(folder: Path) -> None:
    theirs = by_buildah(folder)
    result = build_images(BuildRequest(("worker",), VARIANT, load=True), Events())
    with trees.buildah_root(result.images["worker"].reference) as root:
        ours = told(root)
    assert trees.differences(ours, theirs) == []
    assert len(ours) > 3000
