# SPDX-License-Identifier: Apache-2.0
"""A volume that was accepted without something: what comes later neither misses it nor fails for it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from jail_trees import CAP_NET_RAW, acl
from typer.testing import CliRunner
from upgraded_jail import FOO, FOO2, Jail

from cellblock.bench.harness.slow_fs import slow_filesystem
from cellblock.cli.app import app
from cellblock.errors import CellblockError
from cellblock.events import Event, Events, StepStarted
from cellblock.jail.assemble import Options, assemble
from cellblock.jail.changes import changes
from cellblock.jail.tree.unsupported import UnsupportedMetadata, joined
from cellblock.jail.upgrade import plan_upgrade, upgrade
from cellblock.jail.verify import verify
from cellblock.jail.volume.predicted_losses import predict_losses
from cellblock.jail.volume.shards import Shard
from cellblock.jail.volume.volume import Volume

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts, and keeps owners: needs root")


@pytest.fixture
def bare(jail: Jail) -> Iterator[Jail]:
    """A jail whose volume is a filesystem without extended attributes, as NFS 4.1 is; assembled."""
    old, new = jail.image("old", FOO), jail.image("new", FOO2)
    for tree, added in ((old, ()), (new, ("usr/bin/added",))):
        for name in ("usr/bin/ping", *added):
            (tree.root / name).write_text(tree.root.name)
            os.setxattr(tree.root / name, "security.capability", CAP_NET_RAW)
        os.setxattr(tree.root / "usr/share/foo/data", "system.posix_acl_access", acl(1234))
    jail.path.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "-o", "mode=755", "ramfs", str(jail.path)], check=True)
    try:
        assemble(str(old.root), jail.path, jail.events, options=Options(allow_lossy=True))
        yield jail
    finally:
        subprocess.run(["umount", str(jail.path)], check=True)


def is_clean(jail: Jail) -> bool:
    found = verify(jail.path, jail.events, content=True)
    return (found.n_damaged, found.n_users) == (0, 0)


def test_what_was_lost_is_no_damage_and_an_upgrade_goes_without(bare: Jail) -> None:
    assert is_clean(bare)
    assert not [one for one in changes(bare.path) if one.kind != "added"]
    bare.upgrade()
    assert bare.read("usr/bin/ping") == bare.read("usr/bin/added") == "new"
    assert "foo 2" in bare.read("usr/bin/foo")
    assert is_clean(bare)
    bare.rollback()
    assert bare.read("usr/bin/ping") == "old"
    assert is_clean(bare)


def test_what_an_interrupted_assembly_lost_is_told_by_the_one_that_ends_it(bare: Jail) -> None:
    """It writes no file again that is whole: it would not have found out."""

    def stop(event: Event) -> None:
        if isinstance(event, StepStarted) and event.step == "set directories' owners and times":
            raise KeyboardInterrupt

    stopping = Events()
    stopping.subscribe(stop)
    shutil.rmtree(bare.root)
    os.link(bare.folder / "old/usr/bin/ping", bare.folder / "old/usr/bin/ping4")
    words = str(bare.folder / "old"), bare.path
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            assemble(*words, stopping, options=Options(allow_lossy=True))
    result = assemble(*words, bare.events, options=Options(allow_lossy=True))
    assert result.kept
    assert {one.what: one.count for one in result.losses} == {"ACLs": 1, "file capabilities": 1}
    assert (bare.root / "usr/bin/ping").samefile(bare.root / "usr/bin/ping4")
    assert is_clean(bare)


def test_damage_is_found_and_repaired_all_the_same(bare: Jail) -> None:
    (bare.root / "usr/bin/ping").write_text("cut")
    (bare.root / "usr/bin/foo").write_text("cut")
    assert verify(bare.path, bare.events).n_damaged == 2
    assert verify(bare.path, bare.events, repair=True).is_clean
    assert is_clean(bare)


def test_what_was_not_accepted_is_still_an_error(bare: Jail) -> None:
    name = bare.folder / "new/usr/bin/added"
    os.setxattr(name, "user.note", b"x")  # the old image had no such attribute
    with pytest.raises(CellblockError, match=r"cannot hold the attribute user\.note of /usr/bin/added"):
        bare.upgrade()
    assert bare.read("usr/bin/ping") == "old"


def test_what_only_the_new_image_has_can_be_accepted(bare: Jail) -> None:
    """ACLs and capabilities are accepted already, user.* is new; `apply` and `upgrade` have the option."""
    for name in ("usr/bin/added", "usr/bin/foo"):
        os.setxattr(bare.folder / "new" / name, "user.note", b"x")
        os.setxattr(bare.folder / "new" / name, "user.other", b"x")
    words = [str(bare.folder / "new"), str(bare.path)]
    plan = bare.folder / "plan"
    for command in (["upgrade", *words], ["upgrade", *words, "--plan", "--output", str(plan)]):
        said = CliRunner().invoke(app, ["jail", *command, "--log", "plain"])
        assert said.exit_code == (1 if "--plan" not in command else 0)
    applied = ["jail", "apply", str(plan), str(bare.path), "--log", "plain", "--json"]
    said = CliRunner().invoke(app, applied)
    assert isinstance(said.exception, CellblockError)
    assert "--allow-lossy" in said.exception.hint
    assert bare.read("usr/bin/ping") == "old"
    said = CliRunner().invoke(app, [*applied, "--allow-lossy"])
    assert said.exit_code == 0, said.output
    (lost,) = json.loads(said.stdout)["losses"]
    assert (lost["what"], lost["count"]) == ("extended attributes", 2)
    assert "could not hold the extended attributes of 2 files" in said.stderr
    assert {one.what for one in joined([bare.path / ".cellblock/losses.json"])} == {
        "ACLs",
        "extended attributes",
        "file capabilities",
    }
    assert is_clean(bare)
    bare.rollback()
    assert is_clean(bare)
    said = CliRunner().invoke(app, ["jail", "upgrade", *words, "--log", "plain"])
    assert said.exit_code == 0, "once accepted, it holds"


def test_a_plan_foretells_what_would_be_lost_and_writes_nothing(bare: Jail) -> None:
    for name in ("usr/bin/added", "usr/bin/foo"):
        os.setxattr(bare.folder / "new" / name, "user.note", b"x")
    os.mkfifo(bare.folder / "new/etc/fifo")
    before = everything_of(bare.path)
    command = ["jail", "upgrade", str(bare.folder / "new"), str(bare.path), "--plan"]
    said = CliRunner().invoke(app, command)
    assert said.exit_code == 0
    assert (
        "loss      extended attributes of 2 files, for example /usr/bin/added: what programs" in said.output
    )
    assert "the upgrade is refused without --allow-lossy" in said.output
    assert "unknown   fifos, 1, for example /etc/fifo" in said.output
    assert "ACLs" not in said.output, "it was accepted"
    words = shlex.join(["jail", "upgrade", str(bare.folder / "new"), str(bare.path), "--allow-lossy"])
    assert f"  next: `python3 build.py {words}` does it, and loses that\n" in said.output
    file = bare.folder / "plan"
    said = CliRunner().invoke(app, [*command, "--output", str(file)])
    assert f"  next: `python3 build.py jail apply {file} {bare.path} --allow-lossy` does it" in said.output
    same = CliRunner().invoke(app, [*command[:2], str(bare.folder / "old"), *command[3:]])
    assert "  next: nothing: the volume has all of it\n" in same.output
    found = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert [(one["what"], one["count"]) for one in found["losses"]] == [("extended attributes", 2)]
    assert [(one["what"], one["count"]) for one in found["losses_unknown"]] == [("fifos", 1)]
    assert everything_of(bare.path) == before
    with pytest.raises(CellblockError, match=r"cannot hold the attribute user\.note"):
        bare.upgrade()
    done = upgrade(str(bare.folder / "new"), bare.path, bare.events, allow_lossy=True)
    assert [(one.what, one.count) for one in done.losses] == [("extended attributes", 2)]


def everything_of(volume: Path) -> dict[Path, tuple[int, ...]]:
    """Of each file the status, to the time of its last change."""
    found = {}
    for path in (volume, *volume.rglob("*")):
        status = path.lstat()
        found[path] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return found


def test_a_plan_of_what_the_volume_can_hold_foretells_nothing(jail: Jail) -> None:
    old = jail.image("old", FOO)
    new = jail.image("new", FOO2)
    for tree in (old, new):
        os.mkfifo(tree.root / f"etc/{tree.root.name}")
    os.setxattr(new.root / "usr/bin/foo", "security.capability", CAP_NET_RAW)
    assemble(str(old.root), jail.path, jail.events)
    assert predict_losses(Volume(jail.path), jail.plan()) == ((), ())


def test_attributes_alone_are_refused_before_anything_is_changed(bare: Jail) -> None:
    """Set in place after the commit, what cannot be set would stop that upgrade and all that follows."""
    for name in ("usr/bin/same", "usr/share/folder"):
        for image in ("new", "old"):
            path = bare.folder / image / name
            path.write_text("same") if name.startswith("usr/bin") else path.mkdir()
            os.utime(path, (1, 1))
        os.setxattr(path.parents[2].parent / "new" / name, "user.note", b"x")
        shutil.rmtree(bare.root)
        assemble(str(bare.folder / "old"), bare.path, bare.events, options=Options(allow_lossy=True))
        with pytest.raises(CellblockError, match=rf"cannot hold the attribute user\.note of /{name}"):
            bare.upgrade()
        assert not (bare.path / ".cellblock/transaction").exists()
        os.removexattr(bare.folder / "new" / name, "user.note")
    os.setxattr(bare.folder / "new" / name, "user.note", b"x")
    upgrade(str(bare.folder / "new"), bare.path, bare.events, allow_lossy=True)
    assert is_clean(bare)


def test_shards_list_what_each_of_them_lost(small: Path, tmp_path: Path, events: Events) -> None:
    for number in range(12):
        (small / f"d{number}").mkdir()
        os.mkfifo(small / f"d{number}/fifo")
    (small / "link").symlink_to("etc")
    os.link(small / "link", small / "other-name", follow_symlinks=False)
    with slow_filesystem(tmp_path, latency_us=10, lossy=True) as place:
        for index in range(3):
            result = assemble(
                str(small),
                place / "volume",
                events,
                options=Options(shard=Shard(index, 3), allow_lossy=True),
            )
        assert {loss.what: loss.count for loss in result.losses} == {"fifos": 12, "hard links": 1}
        assert {loss.what for loss in joined([place / "volume/.cellblock/losses.json"])} == {
            "fifos",
            "hard links",
        }
        assert str((result.root / "other-name").readlink()) == "etc"
        found = verify(place / "volume", events)
        assert (found.n_damaged, found.n_users) == (0, 0)
        with pytest.raises(CellblockError, match="has no hard links; nothing was changed"):
            plan_upgrade(str(small), place / "volume")
        (place / "volume/root/d1").rmdir()
        with pytest.raises(CellblockError, match="has no hard links; nothing was changed"):
            verify(place / "volume", events, repair=True, users=True)
        (small / "new").touch()
        (small / "another-name").hardlink_to(small / "new")
        with pytest.raises(CellblockError, match="has no hard links; nothing was changed"):
            upgrade(str(small), place / "volume", events)


def test_a_damaged_list_is_named(tmp_path: Path) -> None:
    (tmp_path / "losses.json").write_text('[{"count": 1}]')
    with pytest.raises(CellblockError, match=r"losses\.json: damaged"):
        UnsupportedMetadata.of(tmp_path)
