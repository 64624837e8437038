# SPDX-License-Identifier: Apache-2.0
"""Which packages become a layer that several images share."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock.build.package_layers import Closure, PackageLayer, plan_package_layers

MIB = 1 << 20


def closure(
    holds: Mapping[str, str],
    parents: Mapping[str, str | None],
    depends: Mapping[str, tuple[str, ...]] | None = None,
    cuda: str = "",
    size: int = MIB,
) -> Closure:
    """Packages are letters; what an image holds includes its parents' here."""
    letters = {letter for held in holds.values() for letter in held}
    return Closure(
        parents=parents,
        holds={image: frozenset(held) for image, held in holds.items()},
        depends=depends or {},
        size=dict.fromkeys(letters, size),
        roots={image: frozenset(held) - frozenset(cuda) for image, held in holds.items()},
        cuda=frozenset(cuda),
    )


def layers(planned: Mapping[str, tuple[PackageLayer, ...]], image: str) -> list[tuple[str, str]]:
    return [(layer.kind, "".join(layer.packages)) for layer in planned[image]]


def test_what_two_images_share_is_one_layer_below_their_own() -> None:
    planned = plan_package_layers(
        closure({"base": "a", "x": "abc", "y": "abd"}, {"base": None, "x": "base", "y": "base"})
    )
    assert layers(planned, "base") == [("base", "a")]
    assert layers(planned, "x") == [("shared", "b"), ("packages", "c")]
    assert layers(planned, "y") == [("shared", "b"), ("packages", "d")]
    assert planned["x"][0] == planned["y"][0]


def test_the_largest_saving_comes_first() -> None:
    holds = {"base": "a", "x": "abcd", "y": "abcd", "z": "ab"}
    planned = plan_package_layers(closure(holds, {"base": None, "x": "base", "y": "base", "z": "base"}))
    # bcd in two images saves 3 MiB, b in three saves 2.
    assert layers(planned, "x") == [("shared", "bcd")]
    assert layers(planned, "z") == [("packages", "b")]


def test_what_is_too_small_is_not_worth_a_layer() -> None:
    holds = {"base": "a", "x": "abc", "y": "abd"}
    planned = plan_package_layers(closure(holds, {"base": None, "x": "base", "y": "base"}, size=1000))
    assert layers(planned, "x") == [("packages", "bc")]


def test_a_shared_package_stays_with_what_it_needs() -> None:
    """b needs c or d, and the images chose differently: b cannot be configured where neither is."""
    holds = {"base": "a", "x": "abc", "y": "abd"}
    parents = {"base": None, "x": "base", "y": "base"}
    planned = plan_package_layers(closure(holds, parents, {"b": ("c | d",)}))
    assert layers(planned, "x") == [("packages", "bc")]
    assert layers(planned, "y") == [("packages", "bd")]


def test_what_only_cuda_asks_for_is_the_topmost_layer() -> None:
    holds = {"base": "a", "jail": "abcd"}
    depends = {"c": ("d",)}
    given_ = closure(holds, {"base": None, "jail": "base"}, depends, cuda="c")
    planned = plan_package_layers(
        Closure(
            given_.parents, given_.holds, depends, given_.size, {"base": {"a"}, "jail": {"a", "b"}}, {"c"}
        )
    )
    assert layers(planned, "jail") == [("packages", "b"), ("cuda", "cd")]


@given(
    st.dictionaries(st.sampled_from("vwxyz"), st.frozensets(st.sampled_from("bcdefgh")), min_size=1),
    st.integers(1, 12),
)
def test_layers_of_an_image_are_what_it_holds_each_package_once(
    added: dict[str, frozenset[str]], budget: int
) -> None:
    holds = {"base": "a", **{image: "a" + "".join(sorted(more)) for image, more in added.items()}}
    parents: dict[str, str | None] = {"base": None, **dict.fromkeys(added, "base")}
    planned = plan_package_layers(closure(holds, parents), budget)
    for image, held in holds.items():
        below = planned["base"] if image != "base" else ()
        packages = [package for layer in (*below, *planned[image]) for package in layer.packages]
        assert sorted(packages) == sorted(held)
        assert len(planned[image]) + len(below) <= max(budget, 2)


def test_a_shared_layer_stands_on_the_same_layers_in_all_its_images() -> None:
    holds = {"base": "a", "x": "abcde", "y": "abcdf", "z": "abg"}
    planned = plan_package_layers(closure(holds, {"base": None, "x": "base", "y": "base", "z": "base"}))
    for image, own in planned.items():
        for place, layer in enumerate(own):
            for other in layer.images:
                assert planned[other][: place + 1] == own[: place + 1], (image, other)


def test_an_image_without_packages_has_no_layer_of_them() -> None:
    planned = plan_package_layers(closure({"base": "a", "x": "a"}, {"base": None, "x": "base"}))
    assert planned["x"] == ()


def test_titles_say_whose_they_are() -> None:
    assert PackageLayer("shared", ("a",), ("x", "y")).title == "packages shared by x, y"
    with pytest.raises(AttributeError):
        PackageLayer("base", (), ()).kind = "shared"  # type: ignore[misc]
