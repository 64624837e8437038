# SPDX-License-Identifier: Apache-2.0
"""What a build of layers promises: the same bytes again, others' layers from a registry, exactly the lock."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.build import BuildRequest, build_images, copy_images, install_commands, layer_builder
from cellblock.build.package_locks import LockRequest, make_lock
from cellblock.build.unpack_packages import Opened, Unpacking, plan_unpacking
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events, Message
from cellblock.inspect.verify import verify_images
from cellblock.oci.contents import ContentsReader
from cellblock.oci.layout import Layout
from cellblock.store.image_store import image_store
from cellblock.store.record import read_record
from tests.integration.registry import RunningRegistry
from tests.lock.versions import versions

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root"),
]
VARIANT = "debian13"


@pytest.fixture
def declare(definitions: Path) -> Callable[[str], str]:
    """Declares an image on base; its names are taken away afterwards."""
    name = f"direct{os.getpid()}"

    def declared(text: str) -> str:
        (definitions / name).mkdir(exist_ok=True)
        (definitions / name / "image.yaml").write_text(f"summary: test\nfrom: base\n{text}")
        return name

    return declared


@pytest.fixture
def request_(definitions: Path, tmp_path: Path) -> BuildRequest:
    return BuildRequest((), VARIANT, definitions=definitions, locks=tmp_path / "locks")


def test_a_second_build_from_nothing_is_the_same_and_what_differs_is_named(
    request_: BuildRequest, declare: Callable[[str], str]
) -> None:
    name = declare("run: ['date +%N > /etc/made-at', echo same > /etc/stays]\n")
    build_images(request_, Events())
    found = verify_images(request_, Events())
    assert found["base"].digest == found["base"].again
    assert found[name].digest != found[name].again
    assert {each.path for each in found[name].differences if each.path} == {"etc/made-at"}


def test_manual_pages_of_all_packages_are_added_and_the_same_each_time(
    request_: BuildRequest, declare: Callable[[str], str]
) -> None:
    name = declare("packages: [man-db]\nmanuals: true\nrun: [mandb --quiet --create]\n")
    named = replace(request_, images=(name,))
    build_images(named, Events())
    found = verify_images(named, Events())[name]
    assert found.digest == found.again
    store = image_store()
    image = store.stored(store.references()[f"localhost/cellblock/{name}:{VARIANT}"])
    paths = ContentsReader(store).image(image).entries
    # Of its own package, of one of the base, of an alternative (mawk); in English.
    pages = {f"usr/share/man/man1/{page}.1.gz" for page in ("man", "ls", "awk")}
    assert pages <= paths.keys()
    assert paths["var/cache/man/index.db"].size > 10_000
    assert not [path for path in paths if path.startswith("usr/share/man/de/") and path.endswith(".gz")]


def test_what_is_laid_down_is_what_dpkg_unpacks(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = BuildRequest(("slurm",), VARIANT)
    build_images(slurm, Events())

    def all_by_dpkg(packages: Sequence[Opened], trees: Sequence[Path]) -> Unpacking:
        named = [replace(each, deb=replace(each.deb, by_dpkg="the test says so")) for each in packages]
        return plan_unpacking(named, trees)

    monkeypatch.setattr(layer_builder, "plan_unpacking", all_by_dpkg)
    monkeypatch.setattr(install_commands, "merged_folders", lambda _: None)
    found = verify_images(slurm, Events())["slurm"].differences
    # Times of folders, device nodes, and what mmdebstrap's own apt and dpkg leave behind.
    leftovers = {"var/cache/apt", "var/cache/apt/archives/partial", "var/lib/apt/extended_states"}
    leftovers |= {"var/lib/dpkg/triggers/Unincorp"}
    differing = {
        each.path
        for each in found
        if not each.path.startswith("dev/") and not all(what.startswith("time ") for what in each.what)
    }
    assert differing - {""} <= leftovers
    # It is another way: the same would be no proof.
    assert "var/lib/apt/extended_states" in differing


def test_an_image_that_is_not_built_cannot_be_verified(
    request_: BuildRequest, declare: Callable[[str], str]
) -> None:
    name = declare("run: [echo never built]\n")
    with pytest.raises(
        CellblockError, match=f"image {name} of {VARIANT} is not built from the inputs of now"
    ):
        verify_images(replace(request_, images=(name,)), Events())


def test_layers_that_somebody_else_made_come_from_the_registry(
    request_: BuildRequest,
    declare: Callable[[str], str],
    registry: RunningRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = declare("run: ['date +%N > /etc/made-at']\n")
    shared = replace(request_, cache=f"{registry.host}/cache")
    # Layers of this machine's cache are found there and not given away: others would have to be made.
    monkeypatch.setenv("CELLBLOCK_CACHE", str(tmp_path / "here"))
    (tmp_path / "here").mkdir()
    (tmp_path / "here/debs").symlink_to("/var/cache/cellblock/debs")
    first = build_images(shared, Events())
    monkeypatch.setenv("CELLBLOCK_CACHE", str(tmp_path / "elsewhere"))
    said: list[str] = []
    events = Events()
    events.subscribe(lambda event: said.append(event.text) if isinstance(event, Message) else None)
    second = build_images(shared, events)
    assert {each: image.id for each, image in second.images.items()} == {
        each: image.id for each, image in first.images.items()
    }
    assert any(name in text and "from the shared cache" in text for text in said)
    assert not (tmp_path / "elsewhere/debs").exists()


def test_a_registry_that_is_not_there_does_not_fail_a_build(
    request_: BuildRequest, declare: Callable[[str], str]
) -> None:
    name = declare("run: [touch /etc/unshared]\n")
    warnings: list[str] = []
    events = Events()
    events.subscribe(
        lambda event: (
            warnings.append(event.text) if isinstance(event, Message) and event.level == "warning" else None
        )
    )
    assert name in build_images(replace(request_, cache="127.0.0.1:9/cache"), events).images
    assert len(warnings) == 1
    assert "127.0.0.1:9" in warnings[0]


def test_a_locked_build_holds_what_the_lock_says(
    request_: BuildRequest, declare: Callable[[str], str]
) -> None:
    name = declare("packages: [hello]\n")
    locked = replace(request_, locked=True)
    with pytest.raises(UsageError, match="there is no lock of debian13"):
        build_images(locked, Events())
    lock = make_lock(
        LockRequest(VARIANT, definitions=request_.definitions, locks=request_.locks), Events()
    ).lock
    build_images(locked, Events())
    record = read_record(name, VARIANT)
    assert record
    held = {package: version for layer in record.layers for package, version in layer.packages}
    assert held == versions(lock, name)
    declare("packages: [hello, sl]\n")
    with pytest.raises(UsageError, match=f"image {name} asks for other packages than the lock .*: sl"):
        build_images(locked, Events())


def test_images_are_copied_to_a_layout_under_short_names(
    request_: BuildRequest, declare: Callable[[str], str], tmp_path: Path
) -> None:
    name = declare("run: [touch /etc/copied]\n")
    copy_images(build_images(request_, Events()), tmp_path / "out")
    image = Layout(tmp_path / "out").image(f"{name}:{VARIANT}")
    assert image.digest == image_store().image(f"localhost/cellblock/{name}:{VARIANT}").digest


def test_a_layer_whose_tree_is_gone_is_unpacked_from_its_blob(
    request_: BuildRequest, declare: Callable[[str], str]
) -> None:
    build_images(request_, Events())
    record = read_record("base", VARIANT)
    assert record
    shutil.rmtree(paths.cache() / "trees" / record.layers[0].key[:32])
    name = declare("run: [test -x /bin/sh, touch /etc/on-unpacked]\n")
    assert name in build_images(request_, Events()).built
