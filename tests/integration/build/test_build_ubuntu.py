# SPDX-License-Identifier: Apache-2.0
"""Ubuntu variants against a local file:// archive that the test makes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cellblock import paths
from cellblock.build import BuildRequest, build_images
from cellblock.build.package_locks import LockRequest, compare_lock, make_lock
from cellblock.build.prepare import prepare
from cellblock.engine.recipe import StepFailed
from cellblock.events import Events
from cellblock.inspect.from_build import variant_plan
from cellblock.store.record import read_record
from tests.integration.archive import HAS_A_MIRROR, make_archive
from tests.lock.versions import versions
from tests.packages.small_archive import SmallArchive

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root"),
    HAS_A_MIRROR,
]
VARIANT = "ubuntu24.04"
IMAGES = ("base", "slurm", "controller")
PACKAGES = (
    *("apt", "passwd", "tini", "munge", "slurm-client", "systemd-standalone-sysusers"),
    *("slurmctld", "slurm-wlm-jwt-plugin", "sackd", "libnss-extrausers"),
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("archive")
    # apt's sandbox user and mmdebstrap's children must reach it.
    for parent in (folder, *folder.parents):
        if parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    small = SmallArchive(tmp_path_factory.mktemp("small"))
    small.add("asks", postinst='echo "asks: which of the two?" >&2\nread answer\n')
    debs = (small.folder / "pool").glob("*.deb")
    yield make_archive(folder, suite="noble", components=("main", "universe"), packages=PACKAGES, debs=debs)
    for image in IMAGES:
        subprocess.run(
            ["buildah", "rmi", "--force", f"localhost/cellblock/{image}:ubuntu24.04"],
            check=False,
            capture_output=True,
        )


@pytest.fixture
def definitions(tmp_path: Path) -> Path:
    """The images whose packages the archive has: a build resolves all that are declared."""
    folder = tmp_path / "images"
    folder.mkdir()
    shutil.copy(paths.PROJECT / "images" / "variants.yaml", folder)
    for image in IMAGES:
        shutil.copytree(paths.PROJECT / "images" / image, folder / image)
    # What is compiled for it: test_build_ubuntu_plugins.py.
    path = folder / "controller" / "image.yaml"
    declared = yaml.safe_load(path.read_text())
    del declared["artifacts"], declared["run"]
    path.write_text(yaml.safe_dump(declared))
    return folder


@pytest.fixture
def request_(archive: str, definitions: Path, tmp_path: Path) -> BuildRequest:
    """A variant that declares the Slurm which the archive holds: Debian 13's."""
    path = definitions / "variants.yaml"
    declared = path.read_text()
    changed = declared.replace('codename: noble, slurm: "23.11"', 'codename: noble, slurm: "24.11"')
    assert changed != declared
    path.write_text(changed)
    return BuildRequest(IMAGES, VARIANT, (archive,), definitions=definitions, locks=tmp_path / "locks")


def test_lock_plan_and_build_follow_each_other(request_: BuildRequest, archive: str) -> None:
    asked = LockRequest(VARIANT, request_.mirrors, definitions=request_.definitions, locks=request_.locks)
    lock = make_lock(asked, Events()).lock
    assert [each.line for each in lock.archives] == [archive]
    assert set(lock.images) == set(IMAGES)
    assert {"slurmctld", "libnss-extrausers"} <= versions(lock, "controller").keys()

    locked = replace(request_, locked=True)
    prepared = prepare(locked, Events())
    plan = variant_plan(VARIANT, prepared.plans, lambda node: None)
    assert next(layer.kind for layer in plan.images["controller"]) == "base"
    assert sum(layer.packages for layer in plan.images["controller"]) == len(
        lock.images["controller"].packages
    )

    result = build_images(locked, Events())
    assert set(result.images) == set(IMAGES)
    record = read_record("controller", VARIANT)
    assert record
    held = {package: version for layer in record.layers for package, version in layer.packages}
    assert held == versions(lock, "controller")
    assert build_images(locked, Events()).built == ()
    assert compare_lock(asked, Events()).is_current


def test_a_package_that_needs_an_answer_fails_with_what_it_says_and_the_way_to_answer(
    request_: BuildRequest,
) -> None:
    asking = request_.definitions / "asking"
    asking.mkdir()
    (asking / "image.yaml").write_text("summary: a\nfrom: base\npackages: [asks]\n")
    with pytest.raises(StepFailed, match="asks: which of the two") as raised:
        build_images(replace(request_, images=("asking",)), Events())
    assert "image asking: step 'install packages'" in str(raised.value)
    assert "debconf-set-selections" in raised.value.hint
    # What was made before it is kept, and an answer lets it go on.
    assert build_images(replace(request_, images=("base",)), Events()).built == ()


def test_an_ubuntu_base_is_bootstrapped_from_a_local_archive(archive: str, definitions: Path) -> None:
    request = BuildRequest(("base",), VARIANT, (archive,), definitions=definitions, load=True)
    result = build_images(request, Events())
    reference = result.images["base"].reference
    container = subprocess.run(
        ["buildah", "from", "--pull-never", reference], check=True, capture_output=True, text=True
    ).stdout.strip()
    try:
        mounted = subprocess.run(
            ["buildah", "mount", container], check=True, capture_output=True, text=True
        ).stdout.strip()
        assert "slurm:x:64030:64030" in Path(mounted, "etc/passwd").read_text()
        assert "noble main universe" in Path(mounted, "etc/apt/sources.list").read_text()
        assert not list(Path(mounted, "var/lib/apt/lists").glob("*Packages*"))
    finally:
        subprocess.run(["buildah", "rm", container], check=True, capture_output=True)


def test_an_archive_with_another_slurm_than_declared_is_refused(archive: str, definitions: Path) -> None:
    # The archive holds Debian 13's Slurm 24.11, the variant declares 23.11: plugins would not load.
    with pytest.raises(StepFailed, match=r"23\.11.*24\.11|24\.11.*23\.11") as raised:
        build_images(BuildRequest(("slurm",), VARIANT, (archive,), definitions=definitions), Events())
    assert "image slurm" in str(raised.value)
