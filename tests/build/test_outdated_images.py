# SPDX-License-Identifier: Apache-2.0
"""Images of earlier inputs are told from those that a build would give, without asking an archive."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.build.image_plan import all_inputs
from cellblock.build.outdated_images import stale_images
from cellblock.build.prepare import Prepared, prepare
from cellblock.build.request import BuildRequest
from cellblock.events import Event, Events, Message
from cellblock.store.record import ImageRecord
from tests.packages.small_archive import SmallArchive


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildRequest:
    """Two images of a small archive."""
    monkeypatch.setenv("CELLBLOCK_CACHE", str(tmp_path / "cache"))
    small = SmallArchive(tmp_path / "archive")
    for name, fields in {"base-files": {"Essential": "yes"}, "apt": {}, "one": {}, "two": {}}.items():
        small.add(name, **fields)
    small.publish()
    definitions = tmp_path / "images"
    for name, text in {"root": "summary: r\n", "child": "summary: c\nfrom: root\npackages: [one]\n"}.items():
        (definitions / name).mkdir(parents=True)
        (definitions / name / "image.yaml").write_text(text)
    shutil.copy(paths.PROJECT / "images" / "variants.yaml", definitions)
    mirror = f"deb [trusted=yes] file://{small.folder} trixie main"
    return BuildRequest((), "debian13", (mirror,), definitions=definitions)


@pytest.fixture
def records(request_: BuildRequest) -> dict[str, ImageRecord]:
    """As a build would have written them."""
    return records_of(prepare(request_, Events()))


def records_of(prepared: Prepared) -> dict[str, ImageRecord]:
    return {
        name: ImageRecord(name, "debian13", plan.reference, "", plan.key.digest, all_inputs(plan), (), "", 0)
        for name, plan in prepared.plans.items()
    }


@pytest.fixture
def change(request_: BuildRequest) -> Callable[[str, str], None]:
    def write(image: str, text: str) -> None:
        (request_.definitions / image / "image.yaml").write_text(text)

    return write


def test_nothing_is_stale_after_a_build(request_: BuildRequest, records: dict[str, ImageRecord]) -> None:
    assert stale_images(request_, records, Events()) == frozenset()


def test_a_changed_definition_makes_its_image_stale_and_what_stands_on_it(
    request_: BuildRequest, records: dict[str, ImageRecord], change: Callable[[str, str], None]
) -> None:
    change("child", "summary: c\nfrom: root\npackages: [one]\nenv: {A: b}\n")
    assert stale_images(request_, records, Events()) == {"child"}
    change("root", "summary: r\nrun: [touch /x]\n")
    assert stale_images(request_, records, Events()) == {"root", "child"}


def test_other_packages_are_asked_of_no_archive(
    request_: BuildRequest,
    records: dict[str, ImageRecord],
    change: Callable[[str, str], None],
    tmp_path: Path,
) -> None:
    (tmp_path / "archive" / "dists" / "trixie" / "Release").write_text("nothing that apt could read")
    change("child", "summary: c\nfrom: root\npackages: [one, two]\n")
    assert stale_images(request_, records, Events()) == {"root", "child"}


def test_an_image_that_is_no_longer_declared_is_stale(
    request_: BuildRequest, records: dict[str, ImageRecord]
) -> None:
    shutil.rmtree(request_.definitions / "child")
    assert "child" in stale_images(request_, records, Events())


def test_definitions_that_cannot_be_read_are_a_warning(
    request_: BuildRequest, records: dict[str, ImageRecord], change: Callable[[str, str], None]
) -> None:
    change("child", "sumary: c\n")
    said: list[Event] = []
    events = Events()
    events.subscribe(said.append)
    assert stale_images(request_, records, events) == frozenset()
    assert any(isinstance(event, Message) and "sumary" in event.text for event in said)
    assert stale_images(replace(request_, variant="no-such"), {}, Events()) == frozenset()
