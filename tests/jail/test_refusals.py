# SPDX-License-Identifier: Apache-2.0
"""Wrong sources, volumes and plans are refused before anything is written, saying what to write."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events
from cellblock.jail.assemble import assemble
from cellblock.jail.merge import change_plan
from cellblock.jail.source.find import find_source
from cellblock.jail.upgrade import upgrade

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps the owners of its files")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "oci:",
        "oci::tag",
        "oci-archive:",
        "https://host/path",
        "docker-archive:x.tar",
        "dir:/x",
        "file:///x",
    ],
)
def test_what_is_no_form_of_a_source_is_answered_with_the_forms(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"docker://HOST/PATH.*oci:DIR.*oci-archive:FILE"):
        find_source(text)


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_a_device_is_not_read_as_a_tar(path: str) -> None:
    with pytest.raises(CellblockError, match="neither a file nor a directory"):
        find_source(path)


@needs_root
@needs_root
def test_a_time_that_nanoseconds_cannot_count_is_refused(small: Path, tmp_path: Path, events: Events) -> None:
    far = 400 * 366 * 86_400 * 10**9
    os.utime(small / "etc/os-release", ns=(0, far))
    if (small / "etc/os-release").stat().st_mtime_ns != far:
        pytest.skip("this filesystem has no such times either")
    with pytest.raises(CellblockError, match=r"/etc/os-release: its time is before 1678 or after 2262"):
        assemble(str(small), tmp_path / "volume", events)
    assert not (tmp_path / "volume/root").exists()


def test_a_source_without_files_becomes_no_jail(small: Path, tmp_path: Path, events: Events) -> None:
    empty, volume = tmp_path / "empty", tmp_path / "volume"
    empty.mkdir()
    with pytest.raises(CellblockError, match="has no files; nothing was assembled"):
        assemble(str(empty), volume, events)
    assert not (volume / "root").exists()
    assemble(str(small), volume, events)
    with pytest.raises(CellblockError, match="has no files, and all of the image's would be removed"):
        upgrade(str(empty), volume, events)
    assert (volume / "root/etc/os-release").exists()


@needs_root
def test_a_volume_is_no_part_of_its_source_nor_of_another_jail(
    small: Path, tmp_path: Path, events: Events
) -> None:
    volume = tmp_path / "volume"
    assemble(str(small), volume, events)
    for inside in ("root/home/other", ".cellblock/other"):
        with pytest.raises(CellblockError, match=f"lies inside another jail, {volume}; nothing was written"):
            assemble(str(small), volume / inside, events)
        assert not (volume / inside).exists()
    with pytest.raises(CellblockError, match="lies inside its source"):
        upgrade("/", volume, events)


@needs_root
def test_a_volume_that_is_a_file_is_said_to_be_one(small: Path, tmp_path: Path, events: Events) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(CellblockError, match=f"{file} is no directory"):
        assemble(str(small), file, events)
    assert file.read_bytes() == b""


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["[1]"],
        ['{"format": 1}'],
        ['{"format": 0}'],
        ['{"format": "2"}'],
        ["nonsense"],
        ["edited verb"],
        ["edited operation"],
        ["edited source"],
    ],
)
def test_what_is_no_plan_is_answered_with_how_to_make_one(lines: list[str], tmp_path: Path) -> None:
    head = {
        "format": 1,
        "operation": "upgrade",
        "base_manifest": "0",
        "source": {"kind": "tar", "reference": "x.tar", "id": "sha256:0"},
        "glibc": None,
        "regenerate_cache": False,
    }
    action = {"action": "put", "path": "a", "before": None, "after": None, "stamp": None}
    action |= {"note": "", "beside": False, "link": ""}
    plan = tmp_path / "plan"

    def write(head: object, action: object) -> None:
        plan.write_text("".join(json.dumps(line) + "\n" for line in (head, action, {"end": 1})))

    write(head, action)
    assert len(change_plan.read(plan).actions) == 1
    if lines == ["edited verb"]:
        write(head, action | {"action": "frob"})
    elif lines == ["edited operation"]:
        write(head | {"operation": "frob"}, action)
    elif lines == ["edited source"]:
        write(head | {"source": {"frob": 1}}, action)
    else:
        plan.write_text("".join(line + "\n" for line in lines))
    with pytest.raises(CellblockError, match=r"no plan of an upgrade: (?s:.*)--plan --output FILE"):
        change_plan.read(plan)
