# SPDX-License-Identifier: Apache-2.0
"""Why an image would be built again, said in words."""

from __future__ import annotations

import pytest

from cellblock.inspect.why import Inputs, why_changed

A, B = "a" * 64, "b" * 64


@pytest.mark.parametrize(
    ("name", "old", "new", "text"),
    [
        ("images/worker/files/etc/x", f"file {A}", f"file {B}", "file images/worker/files/etc/x changed"),
        (
            "images/x/files/su",
            f"file {A}",
            f"executable {A}",
            "images/x/files/su was a file, is an executable now",
        ),
        (
            "images/x/files/su",
            f"executable {A}",
            f"file {B}",
            "images/x/files/su was an executable, is a file now, and its content changed",
        ),
        ("images/x/files/new", None, f"file {B}", "file images/x/files/new added"),
        ("images/x/files/old", f"link {A}", None, "link images/x/files/old removed"),
        ("package libc6", f"2.41-12 {A}", f"2.41-13 {B}", "package libc6 2.41-12 -> 2.41-13"),
        (
            "package libc6",
            f"2.41-12 {A}",
            f"2.41-12 {B}",
            "package libc6 2.41-12: another deb of the same version",
        ),
        ("package nano", None, f"8 {A}", "package nano 8 added"),
        ("package vim", f"9 {A}", None, "package vim 9 removed"),
        ("the code that builds", A, B, "the code that builds changed"),
        ("tool zstd", "1.5.6", "1.5.7", "tool zstd 1.5.6 -> 1.5.7"),
        ("images/worker/image.yaml: run", A, B, "images/worker/image.yaml: run changed"),
        ("image slurm", None, A, "image slurm is needed now"),
        ("image slurm", A, None, "image slurm is no longer needed"),
    ],
)
def test_a_change_is_said_in_words(name: str, old: str | None, new: str | None, text: str) -> None:
    recorded, now = ({name: value} if value else {} for value in (old, new))
    assert [change.text for change in why_changed(recorded, now)] == [text]


def test_equal_inputs_are_no_cause() -> None:
    assert why_changed({"a": "1", "b": "2"}, {"b": "2", "a": "1"}) == ()


def test_the_cause_in_an_image_below_is_followed_through_all_images() -> None:
    inputs: dict[str, tuple[Inputs, Inputs]] = {
        "slurm": ({"image base": A}, {"image base": B}),
        "base": ({"package libc6": f"1 {A}"}, {"package libc6": f"2 {B}"}),
    }
    changes = why_changed({"image slurm": A}, {"image slurm": B}, inputs.get)
    assert changes[0].text == "image slurm changed"
    assert changes[0].because[0].text == "image base changed"
    assert changes[0].because[0].because[0].text == "package libc6 1 -> 2"


def test_what_a_person_did_comes_first_and_what_follows_from_it_last() -> None:
    now = {"image base": A, "variant": A, "package x": f"1 {A}", "images/x/files/y": f"file {A}"}
    assert [change.name for change in why_changed({}, now)] == [
        "images/x/files/y",
        "package x",
        "variant",
        "image base",
    ]
