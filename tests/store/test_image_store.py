# SPDX-License-Identifier: Apache-2.0
"""Names of images: each checkout has its own, in one store."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.assemble import assemble
from cellblock.jail.source.find import find_source
from cellblock.store import checkout
from cellblock.store.image_store import ImageStore
from cellblock.store.inventory import images
from tests.oci.layers import make_image, member

NAME = "localhost/cellblock/jail:debian13"


def test_a_name_means_what_this_checkout_built(tmp_path: Path) -> None:
    one, two = ImageStore(tmp_path, "1" * 12), ImageStore(tmp_path, "2" * 12)
    first = make_image(one, NAME, [member("etc/motd", "one")])
    assert NAME not in two.references()
    with pytest.raises(CellblockError, match="there is no image"):
        two.image(NAME)
    second = make_image(two, NAME, [member("etc/motd", "two")])
    assert (one.image(NAME).digest, two.image(NAME).digest) == (first.digest, second.digest)
    two.untag([NAME])
    assert one.image(NAME).digest == first.digest
    assert two.references() == {}


def test_what_an_image_was_made_from_means_the_same_to_all(tmp_path: Path) -> None:
    one, two = ImageStore(tmp_path, "1" * 12), ImageStore(tmp_path, "2" * 12)
    made = make_image(one, f"{NAME}.key-abc", [member("etc/motd", "one")])
    assert two.image(f"{NAME}.key-abc").digest == made.digest


def test_names_of_a_checkout_that_is_gone_go_after_a_week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, cache = tmp_path / "project", tmp_path / "cache"
    project.mkdir()
    monkeypatch.setattr("cellblock.paths.PROJECT", project)
    gone, here = ImageStore(cache, checkout.identity()), ImageStore(cache, "2" * 12)
    make_image(gone, NAME, [member("etc/motd", "one")])
    week = time.time() - 8 * 24 * 3600
    used = cache / "checkouts" / checkout.identity()
    os.utime(used, (week, week))
    here.forget_checkouts()
    assert gone.references(), "it is still there"
    shutil.rmtree(project)
    used.touch()
    here.forget_checkouts()
    assert gone.references(), "it was used a moment ago"
    os.utime(used, (week, week))
    here.forget_checkouts()
    assert not list(images(cache))
    assert not used.exists()


def test_a_checkout_keeps_its_identity_and_a_copy_gets_another(tmp_path: Path) -> None:
    first, copy = tmp_path / "first", tmp_path / "copy"
    first.mkdir()
    known = checkout.identity(first)
    assert checkout.identity(first) == known
    shutil.copytree(first, copy)
    assert checkout.identity(copy) != known
    assert checkout.identity(first) == known
    shutil.rmtree(first)
    first.mkdir()
    assert checkout.identity(first) != known, "a new clone in the same folder"
    (first / checkout.FILE).write_text("nonsense")
    assert checkout.identity(first) == checkout.identity(first)


def test_the_jail_is_filled_from_the_checkouts_own_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELLBLOCK_CACHE", str(tmp_path / "cache"))
    store = ImageStore(tmp_path / "cache", checkout.identity())
    other = ImageStore(tmp_path / "cache", "2" * 12)
    make_image(other, NAME, [member("etc/motd", "another checkout's")])
    with pytest.raises(CellblockError, match="this checkout has not built") as refused:
        assemble(NAME, tmp_path / "volume", Events())
    assert "build.py build jail -v debian13" in (refused.value.hint or "")
    built = make_image(store, NAME, [member("etc/motd", "built")])
    result = assemble(NAME, tmp_path / "volume", Events())
    assert (result.root / "etc/motd").read_text() == "built"
    assert result.source.id == built.manifest.config.digest
    # A build may give the name to another image while this one is read.
    source = find_source(NAME)
    source.identify(None)
    make_image(store, NAME, [member("etc/motd", "built since")])
    assert source.identify(None).id == built.manifest.config.digest
    assert find_source(NAME).identify(None).id != built.manifest.config.digest
