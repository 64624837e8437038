# SPDX-License-Identifier: Apache-2.0
"""What `plan` shows and `why` compares, from a build that is prepared."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cellblock.build.image_plan import ImagePlan, all_inputs
from cellblock.build.layer_graph import Node
from cellblock.cache_key import Key
from cellblock.inspect.from_build import variant_plan, why_built
from cellblock.inspect.planned_layers import PlannedLayer
from cellblock.lock.model import LockedPackage
from cellblock.store.record import ImageRecord, LayerKind
from tests.inspect.conftest import layer


def package(name: str, installed: int) -> LockedPackage:
    return LockedPackage(
        name=name,
        version="1",
        architecture="amd64",
        sha256="0" * 64,
        size=installed // 4,
        installed_size=installed,
        filename="",
        archive=0,
        origin="",
        security=False,
        images=(),
        depends=(),
    )


def node(title: str, parent: Node | None, *packages: LockedPackage, kind: LayerKind = "packages") -> Node:
    return Node(kind, title, Key({"title": title}), parent, ("worker",), None, packages)


def plans(tops: Mapping[str, Node]) -> dict[str, ImagePlan]:
    key = {name: Key({f"images/{name}/image.yaml: settings": "1"}) for name in tops}
    return {name: ImagePlan(_Named(name), top, {}, key[name]) for name, top in tops.items()}  # type: ignore[arg-type]


class _Named:
    """What an `ImagePlan` asks a rendered image for: its name, and that of its definition."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.key_name = f"images/{name}"
        self.image = self


@pytest.fixture
def tops() -> dict[str, Node]:
    base = node("base", None, package("libc6", 100_000_000), kind="base")
    worker = node("packages of worker", base, package("slurmd", 10_000_000))
    return {"base": base, "worker": node("files of worker", worker, kind="files")}


def test_sizes_are_predicted_from_installed_sizes_and_shared_layers_are_one(tops: dict[str, Node]) -> None:
    plan = variant_plan("debian13", plans(tops), lambda node: None)
    base, packages, files = plan.images["worker"]
    assert plan.images["base"] == (base,)
    assert (base.size, base.uncompressed, base.packages) == (20_800_000, 65_000_000, 1)
    assert (packages.size, packages.uncompressed) == (3_200_000, 10_000_000)
    assert (files.size, files.uncompressed) == (None, None)
    assert plan.pull("base", "worker") == (24_000_000, 75_000_000)


def test_a_layer_that_is_there_has_its_own_size(tops: dict[str, Node]) -> None:
    built = layer("base", 25_000_000, kind="base")
    plan = variant_plan("debian13", plans(tops), lambda node: built if node.title == "base" else None)
    assert plan.images["base"] == (
        PlannedLayer(tops["base"].id, "base", "base", 25_000_000, 75_000_000, 1, is_built=True),
    )


def test_without_a_record_there_is_no_why(tops: dict[str, Node]) -> None:
    assert why_built(plans(tops)["worker"], None) is None


def test_causes_are_what_differs_from_the_record(tops: dict[str, Node]) -> None:
    before = {**all_inputs(plans(tops)["worker"]), "base: title": "another"}
    record = ImageRecord("worker", "debian13", "", "", "", before, (), "", 0)
    changes = why_built(plans(tops)["worker"], record)
    assert changes is not None
    assert [change.name for change in changes] == ["base: title"]
