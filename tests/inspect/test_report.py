# SPDX-License-Identifier: Apache-2.0
"""The data of a variant's report: each byte of a layer has a package, or none."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from cellblock.errors import CellblockError
from cellblock.inspect.image_graph import ImageGraph
from cellblock.inspect.layer_bytes import Part
from cellblock.inspect.report import Report, figures, report
from cellblock.inspect.sharing import bytes_in_common, pull, shared_layers
from cellblock.inspect.timings import step_names, timings
from cellblock.oci.layout import Layout
from cellblock.store.record import ImageRecord
from tests.inspect.variant import build_variant

NOW = datetime(2026, 5, 13, tzinfo=timezone.utc)


def report_on(folder: Path) -> Report:
    layout, records = build_variant(folder)
    return report("debian13", "", records, layout, ImageGraph("debian13", (), ()), NOW)


def part(of: Report, title: str, name: str) -> Part:
    shared = next(shared for shared in of.layers if shared.layer.title == title)
    return next(part for part in of.parts[shared.layer.digest] if part.name == name)


def test_the_parts_of_a_layer_have_all_its_bytes(tmp_path: Path) -> None:
    made = report_on(tmp_path)
    for shared in made.layers:
        parts = made.parts[shared.layer.digest]
        assert sum(part.bytes for part in parts) == shared.layer.uncompressed


def test_a_file_is_its_packages_also_where_lib_is_a_link_into_usr(tmp_path: Path) -> None:
    libc = part(report_on(tmp_path), "packages of base", "libc6")
    assert libc.version == "2.41-12"
    assert libc.largest[0][0] == "usr/lib/libc.so.6"


def test_what_no_package_owns_is_a_part_without_a_name(tmp_path: Path) -> None:
    assert part(report_on(tmp_path), "packages of worker", "").bytes > 400_000


def test_a_layer_that_is_gone_from_the_store_is_one_part(tmp_path: Path) -> None:
    layout, records = build_variant(tmp_path)
    layout.blob(records["jail"].layers[-1].digest).unlink()
    made = report("debian13", "", records, layout, ImageGraph("debian13", (), ()), NOW)
    assert [part.bytes for part in made.parts[records["jail"].layers[-1].digest]] == [
        records["jail"].layers[-1].uncompressed
    ]


def test_without_a_build_the_report_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CellblockError, match="no image of debian13 was built") as caught:
        report("debian13", "", {}, Layout(tmp_path), ImageGraph("debian13", (), ()), NOW)
    assert "build.py build -v debian13" in caught.value.hint


def test_figures_are_those_of_the_records(tmp_path: Path) -> None:
    made = report_on(tmp_path)
    worker = made.records["worker"]
    assert figures(made)["images"]["worker"]["bytes"] == sum(layer.size for layer in worker.layers)
    assert figures(made)["stored_bytes"] == sum(shared.layer.size for shared in made.layers)


def test_layers_of_most_images_come_first_and_each_once(records: dict[str, ImageRecord]) -> None:
    shared = shared_layers(records.values())
    assert [(each.layer.title, each.images) for each in shared][:2] == [
        ("base", ("base", "slurm", "login", "worker")),
        ("packages shared by login, slurm, worker", ("slurm", "login", "worker")),
    ]
    assert len(shared) == 5


def test_a_pull_counts_what_is_shared_once(records: dict[str, ImageRecord]) -> None:
    both = pull(records, ("login", "worker"))
    assert both is not None
    assert (both.size, both.saved) == (52_020_000, 46_000_000)
    assert pull(records, ("worker", "jail")) is None
    assert bytes_in_common(records["login"], records["slurm"]) == 42_000_000


def test_the_time_of_a_layer_counts_once_whoever_waited_for_it(tmp_path: Path) -> None:
    _, records = build_variant(tmp_path)
    found = {timing.title: timing.steps for timing in timings(records.values())}
    assert found["packages of base"] == {"install packages": 50.0, "write the layer": 71.0}
    assert len(found) == 3


def test_a_step_of_no_layer_is_the_images(records: dict[str, ImageRecord]) -> None:
    found = timings([records["worker"]])
    assert [(timing.title, timing.kind, timing.seconds) for timing in found] == [("worker", None, 12.5)]
    assert step_names(found) == ("install", "write layers")


def test_the_age_of_the_lock_is_that_of_the_oldest_image(tmp_path: Path) -> None:
    layout, records = build_variant(tmp_path)
    records["jail"] = replace(records["jail"], epoch=records["jail"].epoch + 5 * 86400)
    graph = ImageGraph("debian13", (), ())
    assert report("debian13", "", records, layout, graph, NOW).lock_days == 12
    unknown = {name: replace(record, epoch=0) for name, record in records.items()}
    assert report("debian13", "", unknown, layout, graph, NOW).lock_days is None
