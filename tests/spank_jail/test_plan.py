# SPDX-License-Identifier: Apache-2.0
"""The parser through cffi: the C unit tests have the details, here is what Python sees of it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.spank_jail.mount_core import JailError, PlanEntry, parse_plan, parse_plan_text

WritePlan = Callable[[str], Path]


def test_every_field_of_an_entry_comes_through(write_plan: WritePlan) -> None:
    plan = write_plan("""
        # shared data
        /mnt/data /data none rbind,ro,x-create=dir,nofail,x-jail.if=/mnt
        tmpfs /tmp tmpfs size=10%,x-jail.per-job
    """)
    data, tmp = parse_plan(plan)
    assert data == PlanEntry(
        line=3,
        source="/mnt/data",
        target="/data",
        type="rbind",
        attributes=frozenset({"ro", "nodev"}),
        parameters={},
        create="dir",
        nofail=True,
        per_step=False,
        only_if="/mnt",
    )
    assert (tmp.type, tmp.parameters, tmp.per_step) == ("tmpfs", {"size": "10%"}, False)


def test_an_error_names_file_line_and_target(write_plan: WritePlan) -> None:
    plan = write_plan("proc /proc proc defaults\ntmpfs /tmp tmpfs sice=1g\n")
    with pytest.raises(JailError) as caught:
        parse_plan(plan)
    assert (caught.value.file, caught.value.line, caught.value.target) == (str(plan), 2, "/tmp")
    assert str(caught.value).startswith(f'{plan}:2: /tmp: unknown option "sice=1g" for type tmpfs')


def test_a_missing_plan_names_the_call(tmp_path: Path) -> None:
    with pytest.raises(JailError, match=r"nothing: open: No such file or directory \(ENOENT\)") as caught:
        parse_plan(tmp_path / "nothing")
    assert caught.value.number == errno.ENOENT


def test_the_plans_of_the_images_are_right() -> None:
    plans = list((Path(__file__).parents[2] / "images").glob("*/files/**/jail*.fstab"))
    for plan in plans:
        assert parse_plan(plan)


@given(st.binary(max_size=300) | st.text("abc/ \t\n#\\0427,=.", max_size=200).map(str.encode))
@example(b"a /b tmpfs \\054")
def test_any_bytes_are_a_plan_or_a_clear_error(text: bytes) -> None:
    complaint: JailError | None = None
    entries: list[PlanEntry] = []
    try:
        entries = parse_plan_text(text)
    except JailError as error:
        complaint = error
    assert all(entry.target for entry in entries)
    assert complaint is None or (complaint.file == "plan" and complaint.message)
