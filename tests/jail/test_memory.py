# SPDX-License-Identifier: Apache-2.0
"""What is in memory at once: a jail may have millions of files, and any number of them may differ."""

from __future__ import annotations

import gc
import os
import tarfile
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cellblock.cli.app import app
from cellblock.events import Event, Events, Progress
from cellblock.jail import verify
from cellblock.jail.assemble import assemble
from cellblock.jail.comparison import Differing
from cellblock.jail.merge import change_plan
from cellblock.jail.merge.action import Action
from cellblock.jail.rollback import rollback
from cellblock.jail.source.image_core import LayerBytes, Pick, Target, assembling
from cellblock.jail.source.known_digests import KnownDigests, known_digests
from cellblock.jail.source.stream import opener
from cellblock.jail.tree import manifest, spooled_map
from cellblock.jail.tree.tree_check import Found
from cellblock.jail.upgrade import MovedTreeError, plan_upgrade, upgrade
from cellblock.jail.volume import history
from cellblock.jail.volume.volume import Volume
from tests.jail.manifests import read_manifest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root")

FILES = 200


@pytest.fixture(autouse=True)
def own_objects() -> Iterator[None]:
    """The collector leaves out what others made: looking through the runner's objects takes a second."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def alive() -> Counter[type]:
    """How many objects of each kind this test has made that are still there."""
    gc.collect()
    return Counter(type(one) for one in gc.get_objects())


def make_image(folder: Path, content: str) -> Path:
    """A root directory of many files."""
    data = folder / "usr/share/data"
    data.mkdir(parents=True)
    for number in range(FILES):
        (data / f"{number:03d}").write_text(f"{content} {number}\n")
    return folder


class Alive(Events):
    """Counts the objects of one kind whenever progress is told."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        self.kind, self.most, self.before = kind, 0, alive()[kind]
        self.subscribe(self._count)

    def _count(self, event: Event) -> None:
        if isinstance(event, Progress):
            self.most = max(self.most, alive()[self.kind] - self.before)


def test_a_rollback_is_carried_out_with_one_plan_in_memory(tmp_path: Path) -> None:
    """Not the upgrade's, its own, and its own read once more: each takes a kilobyte and more a file."""
    volume = tmp_path / "volume"
    assemble(str(make_image(tmp_path / "old", "old")), volume, Events())
    upgrade(str(make_image(tmp_path / "new", "new")), volume, Events())
    counted = Alive(Action)
    assert rollback(volume, counted).changed
    assert FILES <= counted.most < 1.5 * FILES
    assert (volume / "root/usr/share/data/007").read_text() == "old 7\n"


def make_images(folder: Path) -> list[str]:
    """Two root directories of which each kind of change leads from one to the other."""
    images = []
    for name in ("old", "new"):
        image = folder / name
        make_image(image, name)
        for number in range(20):
            (image / f"{name}-only/{number}").mkdir(parents=True)
            (image / f"{name}-only/{number}/file").write_text(f"{number % 3}")
        for file in (
            "usr/bin/program",
            "usr/lib/libone.so.1",
            "usr/lib/libtwo.so.2",
            "etc/users",
            "etc/both",
        ):
            (image / file).parent.mkdir(parents=True, exist_ok=True)
            (image / file).write_text(f"{file} of the {name} image")
        for number in range(5):
            os.link(image / "usr/bin/program", image / f"usr/bin/name-{number}")
        if name == "old":
            (image / "changes-its-kind").symlink_to("etc")
        else:
            (image / "changes-its-kind").mkdir()
            (image / "changes-its-kind/file").write_text("in it")
        for path in sorted(image.rglob("*")):
            os.utime(path, ns=(10**18, 10**18), follow_symlinks=False)
        images.append(str(image))
    return images


def write(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, ns=(2 * 10**18, 2 * 10**18))


def contents(root: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        text = path.read_bytes() if path.is_file() else b""
        time = 0 if path.is_dir() else status.st_mtime_ns
        found[str(path.relative_to(root))] = (status.st_mode, status.st_nlink, time, text)
    return found


def test_many_changes_are_the_same_in_a_file_as_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = make_images(tmp_path)
    found = []
    for kept in (10**6, 7):
        monkeypatch.setattr(spooled_map, "KEPT", kept)
        volume = tmp_path / f"volume-{kept}"
        assemble(old, volume, Events())
        for name in ("users", "both"):
            write(volume / "root/etc" / name, "of users")
        plan = tmp_path / f"plan-{kept}"
        change_plan.write(plan_upgrade(new, volume), plan)
        upgrade(new, volume, Events(), expected=change_plan.read(plan))
        upgraded = contents(volume / "root")
        write(volume / "root/usr/share/data/007", "since")
        assert rollback(volume, Events()).changed
        done = [change_plan.read(one.folder / "plan") for one in history.read(Volume(volume))]
        # Inodes and times of change are each volume's own.
        actions = [[replace(one, stamp=None) for one in plan.actions] for plan in done]
        found.append((upgraded, contents(volume / "root"), actions, [plan.findings for plan in done]))
    assert found[0] == found[1]
    assert found[0][0]["usr/bin/program"][1] == 6
    assert found[0][1]["usr/share/data/007"][3] == b"since"
    assert len(found[0][2][0]) > FILES


def test_a_plan_in_a_file_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`apply` of a tree that users changed since names what they did."""
    old, new = make_images(tmp_path)
    volume = tmp_path / "volume"
    assemble(old, volume, Events())
    monkeypatch.setattr(spooled_map, "KEPT", 7)
    expected = plan_upgrade(new, volume)
    for number in (3, 5):
        (volume / f"root/usr/share/data/00{number}").write_text("of users")
    (volume / "root/usr/share/data/009").unlink()
    with pytest.raises(MovedTreeError) as said:
        upgrade(new, volume, Events(), expected=expected)
    lines = [line.strip() for line in str(said.value).splitlines()[1:6]]
    assert [line.partition(":")[0] for line in lines] == [
        "/usr/share/data/003",
        "/usr/share/data/003.cellblock-new",
        "/usr/share/data/005",
        "/usr/share/data/005.cellblock-new",
        "/usr/share/data/009",
    ]
    assert lines[0].endswith("nothing would be done to it now")
    assert lines[1].endswith("beside was not planned")


def test_few_of_many_changes_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = tmp_path / "volume"
    assemble(str(make_image(tmp_path / "old", "old")), volume, Events())
    monkeypatch.setattr(spooled_map, "KEPT", 20)
    image = str(make_image(tmp_path / "new", "new"))
    counted = Alive(Action)
    assert upgrade(image, volume, counted).changed
    assert counted.most < 10
    counted = Alive(Action)
    assert rollback(volume, counted).changed
    assert counted.most < 10


def test_verify_names_the_first_and_counts_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chown(1) of a whole tree makes everything differ."""
    volume = tmp_path / "volume"
    assemble(str(make_image(tmp_path / "image", "text")), volume, Events())
    data = volume / "root/usr/share/data"
    for number in range(FILES):
        os.chown(data / f"{number:03d}", 1000, 1000)
    for name, number in (("LISTED", 5), ("REPAIRED", 150)):
        monkeypatch.setattr(verify, name, number)
    found = verify.verify(volume, Events())
    assert (found.n_damaged, found.n_users, found.n_choices, found.is_clean) == (0, FILES, FILES, True)
    assert [one.entry.path[-3:] for one in found.users] == [b"000", b"001", b"002", b"003", b"004"]
    said = CliRunner().invoke(app, ["jail", "verify", str(volume), "--log", "plain"])
    assert said.exit_code == 0
    assert "0 damaged, 200 changed by users" in said.output
    assert "users     /usr/share/data: owner, 5 files in it\nusers     ... and 195 more" in said.output

    undo = ["jail", "verify", str(volume), "--repair", "--users", "--log", "plain"]
    said = CliRunner().invoke(app, undo)
    assert said.exit_code == 1
    assert "200 damaged, 150 of them repaired" in said.output
    assert "again: 50 are left" in said.output
    owners = Counter((data / f"{number:03d}").stat().st_uid for number in range(FILES))
    assert owners == {0: 150, 1000: 50}
    found = verify.verify(volume, Events(), repair=True, users=True)
    assert (found.n_damaged, found.n_left, found.is_clean) == (50, 0, True)
    assert verify.verify(volume, Events()).n_users == 0


def test_verify_holds_what_it_names_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree lacks all of a manifest's files: what was looked at and not kept is gone."""
    volume = tmp_path / "volume"
    assemble(str(make_image(tmp_path / "image", "text")), volume, Events())
    entries = read_manifest(volume / ".cellblock/manifest")
    (lead,) = [entry for entry in entries if entry.path.endswith(b"/199")]
    entries += [lead._replace(path=b"usr/share/more%05d" % number) for number in range(2000)]
    (volume / ".cellblock/manifest").unlink()
    manifest.write(volume / ".cellblock/manifest", entries)
    monkeypatch.setattr(verify, "LISTED", 10)
    before = alive()
    found = verify.verify(volume, Events())
    assert (found.n_damaged, len(found.damaged)) == (2000, 10)
    more = alive() - before
    assert more[Differing] == 10
    assert more[Found] == 0


def test_known_content_is_told_by_a_file_as_by_memory(tmp_path: Path) -> None:
    """`known_digests` holds none of them; the core puts aside what is not among them, and only that."""
    image = make_image(tmp_path / "image", "text")
    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        archive.add(image, arcname=".")
    everything = _put_aside(tmp_path, "everything", array("Q"))
    assert len(everything) == FILES
    entries = [entry for entry in read_manifest(tmp_path / "everything.manifest") if entry.kind == "f"]
    manifest.write(tmp_path / "half", entries[::2])
    with known_digests(tmp_path / "half") as known:
        assert known.count == FILES // 2
        assert _put_aside(tmp_path, "rest", known) == {entry.digest for entry in entries[1::2]}
    (tmp_path / "empty").touch()
    with known_digests(tmp_path / "empty") as known:
        assert _put_aside(tmp_path, "nothing-known", known) == everything


def _put_aside(folder: Path, name: str, known: array[int] | KnownDigests) -> set[str]:
    """The digests of the content of folder/image.tar that the core wrote."""
    aside = folder / name
    aside.mkdir()
    descriptor = os.open(aside, os.O_RDONLY)
    layer = LayerBytes("image", None, opener(folder / "image.tar"))
    try:
        with assembling([layer], Target(descriptor, 2, pick=Pick(known)), lambda read: None, folder) as core:
            core.run()
            core.write_manifest(folder / f"{name}.manifest")
    finally:
        os.close(descriptor)
    return {path.name for path in aside.iterdir()}
