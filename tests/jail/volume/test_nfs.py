# SPDX-License-Identifier: Apache-2.0
"""A volume on NFS, used by two hosts: what is done to it there, locks, and what NFS cannot hold."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deb_trees import Deb, DebTree
from nfs_machine import Machine, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="NFS IS NOT TESTED: it mounts: needs root")

FOO, BAR, LIB, APP = (Deb(name, "1") for name in ("foo", "bar", "lib", "app"))
FOO2 = Deb("foo", "2")

FULL = bool(os.environ.get("CELLBLOCK_NFS_FULL"))
"""Also with a host that is cut off: the server waits for it, and so does the test, for 20 s."""

LEASE_S = 5
"""A process that writes over NFS every half second may be held up for half of it."""
HOLD = f"""
import time
from cellblock.jail.volume.writer_lock import WriterLock, myself
private = Path("/mnt/volume/LOCK/.cellblock"); private.mkdir(parents=True, exist_ok=True)
released = private / "released"
def lock(what, lease_s={LEASE_S}):
    return WriterLock(private, private.parent, myself(what), lease_s)
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with running(tmp_path_factory.mktemp("nfs")) as one:
        yield one


def assemble(place: str, *, lossy: bool) -> str:
    """Python that assembles one of everything on a share, and tells what came of it."""
    return f"""
source = Path("/srv/disk/everything")
if not source.exists():
    make_everything(source)
    (source / "shut").chmod(0o755)
try:
    result = assemble(str(source), Path({place!r}), Events(), options=Options(allow_lossy={lossy}))
except CellblockError as error:
    tell(error=str(error), hint=error.hint, there=Path({place!r}, "root").exists())
else:
    # The client shows the server's own ACL of every file as an attribute: of the mount, not of the file.
    def seen(root):
        kept = lambda pairs: tuple(pair for pair in pairs if not pair[0].startswith("system.nfs4_"))
        return {{path: (*one[:6], kept(one[6]), *one[7:]) for path, one in snapshot(root).items()}}
    # As the server has it: root that is squashed may not read everything.
    root = Path(str(result.root).replace("/mnt/squashed", "/srv/disk/squashed"))
    ours, theirs = seen(root), seen(source)
    fields = ["mode", "uid", "gid", "mtime", "device", "content", "attributes", "links"]
    differ = {{}}
    for path in ours.keys() | theirs.keys():
        a, b = (tree.get(path, ()) for tree in (ours, theirs))
        for name, one, other in zip(fields, a, b) if a and b else [("missing", a, b)]:
            if one != other:
                differ.setdefault(name, []).append(os.fsdecode(path)[:40])
    tell(losses={{loss.what: loss.count for loss in result.losses}}, differ=differ, entries=len(ours))
"""


def test_what_nfs_cannot_hold_is_an_error_and_then_exactly_what_is_lost(machine: Machine) -> None:
    """NFS 4.2 has users' attributes; capabilities and ACLs of files it has not."""
    refused = machine.facts("ada", assemble("/mnt/volume/strict", lossy=False))
    assert "cannot hold the jail" in refused["error"]
    assert "file capabilities" in refused["error"]
    assert "--allow-lossy" in refused["hint"]
    assert not refused["there"]
    done = machine.facts("ada", assemble("/mnt/volume/lossy", lossy=True))
    assert done["losses"] == {"file capabilities": 1, "ACLs": 2}
    assert set(done["differ"]) == {"attributes"}
    assert sorted(done["differ"]["attributes"]) == ["setgid", "shared", "usr/bin/ping"]
    clean = machine.run("bob", *machine.jail("bob", "verify", "/mnt/volume/lossy"))
    assert clean.status == 0, clean.out + clean.err
    assert "0 damaged, 0 changed by users" in clean.out


def test_without_extended_attributes(machine: Machine) -> None:
    done = machine.facts("ada", assemble("/mnt/plain/without", lossy=True))
    assert done["losses"] == {"file capabilities": 1, "ACLs": 2, "extended attributes": 1}
    assert set(done["differ"]) == {"attributes"}


def test_where_the_server_squashes_root(machine: Machine) -> None:
    refused = machine.facts("ada", assemble("/mnt/squashed/strict", lossy=False))
    assert "no owners" in refused["error"]
    assert not refused["there"]
    done = machine.facts("ada", assemble("/mnt/squashed/lossy", lossy=True))
    assert done["losses"]["owners"] > 80
    assert done["losses"]["device nodes"] == 2
    assert set(done["differ"]) == {"uid", "gid", "attributes", "missing"}


def names(machine: Machine, name: str, *packages: Deb) -> str:
    """A root filesystem of packages, made here; its path in the machine."""
    folder = machine.folder / "images"
    (folder / "debs").mkdir(parents=True, exist_ok=True)
    DebTree.make(folder / name, folder / "debs", *packages)
    return f"/mnt/requests/images/{name}"


def test_assembled_by_one_host_upgraded_and_rolled_back_by_another(machine: Machine) -> None:
    old, new = names(machine, "old", FOO, BAR, LIB), names(machine, "new", FOO2, LIB, APP)
    volume = "/mnt/volume/upgraded"
    made = machine.run("ada", *machine.jail("ada", "assemble", old, volume))
    assert made.status == 0, made.err
    machine.run("ada", "sh", "-c", f"mkdir {volume}/root/home; echo precious > {volume}/root/home/work;"
                                   f" echo changed >> {volume}/root/etc/bar.conf")  # fmt: skip
    upgraded = machine.run("bob", *machine.jail("bob", "upgrade", new, volume))
    assert upgraded.status == 0, upgraded.err
    seen = machine.run(
        "ada", "sh", "-c", f"{volume}/root/usr/bin/foo; cat {volume}/root/home/work; ls {volume}/root/usr/bin"
    )
    assert seen.out.split("\n", 2)[:2] == ["foo 2", "precious"]
    assert "app" in seen.out
    back = machine.run("ada", *machine.jail("ada", "rollback", volume))
    assert back.status == 0, back.err
    seen = machine.run(
        "bob", "sh", "-c", f"{volume}/root/usr/bin/foo; cat {volume}/root/home/work; ls {volume}/root/usr/bin"
    )
    assert seen.out.split("\n", 2)[:2] == ["foo 1", "precious"]
    assert "app" not in seen.out
    machine.run("ada", "sh", "-c", f"echo damaged > {volume}/root/usr/share/lib/data")
    found = machine.run("bob", *machine.jail("bob", "verify", volume, "--content"))
    assert found.status == 1
    assert "usr/share/lib/data" in found.out + found.err
    mended = machine.run("bob", *machine.jail("bob", "verify", volume, "--content", "--repair"))
    assert mended.status == 0, mended.out + mended.err


def test_two_hosts_fill_a_volume_together(machine: Machine) -> None:
    source = names(machine, "shared", FOO, BAR, LIB, APP)
    started = [
        machine.start(
            host, *machine.jail(host, "assemble", source, "/mnt/volume/shards", "--shard", f"{n}/2")
        )
        for n, host in enumerate(("ada", "bob"))
    ]
    for result in started:
        done = machine.wait(result)
        assert done.status == 0, done.err
    clean = machine.run("ada", *machine.jail("ada", "verify", "/mnt/volume/shards", "--content"))
    assert clean.status == 0, clean.out + clean.err


def test_a_host_sees_at_once_what_another_has_made(machine: Machine) -> None:
    """NFS remembers for 30 s that a name was not there."""
    looks = """
from cellblock.jail.volume.shards import ShardFolder
from cellblock.jail.volume.volume import Volume
volume = Volume(Path("/mnt/volume/anew"))
tell(there=volume.state() is not None, waiting=ShardFolder(volume.private, "0" * 16, 2).waiting())
"""
    folder = f"/mnt/volume/anew/.cellblock/shards-{'0' * 16}-of-2"
    machine.run("bob", "mkdir", "-p", folder)
    assert machine.facts("ada", looks) == {"there": False, "waiting": [0, 1]}
    machine.run("bob", "touch", f"{folder}/part-0", f"{folder}/part-1")
    assert machine.facts("ada", looks) == {"there": False, "waiting": []}
    done = machine.run(
        "bob", *machine.jail("bob", "assemble", names(machine, "anew", FOO), "/mnt/volume/anew")
    )
    assert done.status == 0, done.err
    assert machine.facts("ada", looks)["there"]


def hold(machine: Machine, host: str, lease_s: float = LEASE_S) -> Path:
    """A process on `host` that holds the lock until `released` is there; returns when it does."""
    script = (
        HOLD
        + f"""
with lock("holding", {lease_s}).held() as check:
    (private / "held").write_text(str(os.getpid()))
    end = time.monotonic() + 120
    while time.monotonic() < end and not released.exists():
        time.sleep(0.05)
        check()
"""
    )
    folder = "/srv/disk/volume/LOCK/.cellblock"
    machine.run("server", "rm", "-f", f"{folder}/held", f"{folder}/released")
    started = machine.start(host, *machine.script(script))
    deadline = time.monotonic() + 120
    while machine.run("server", "test", "-s", f"{folder}/held").status:
        assert time.monotonic() < deadline
        assert not started.exists(), started.read_text()
    return started


TRY = (
    HOLD
    + """
notices, began = [], time.monotonic()
try:
    with lock("trying").held(notices.append) as check:
        check()
        tell(got=True, notices=notices, seconds=time.monotonic() - began)
except CellblockError as error:
    tell(got=False, error=str(error), seconds=time.monotonic() - began)
"""
)


def kill_holder(machine: Machine, host: str) -> None:
    machine.run(host, "sh", "-c", "kill -9 $(cat /mnt/volume/LOCK/.cellblock/held)")


def test_a_writer_on_one_host_keeps_one_on_another_out(machine: Machine) -> None:
    # Never silent for long enough, whatever else the machine does; bob waits for its next beat.
    holding = hold(machine, "ada", 30)
    refused = machine.facts("bob", TRY.replace('lock("trying")', 'lock("trying", 30)'))
    assert not refused["got"]
    assert "is being written by `holding` (process " in refused["error"]
    assert " on ada, since " in refused["error"]
    machine.run("ada", "touch", "/mnt/volume/LOCK/.cellblock/released")
    ended = machine.wait(holding)
    assert ended.status == 0, ended.err
    assert machine.facts("bob", TRY)["got"]


def test_a_killed_writers_lock_is_taken_over(machine: Machine) -> None:
    """On its own host at once; on another one, which cannot look, when it has been silent for the lease."""
    holding = hold(machine, "ada")
    kill_holder(machine, "ada")
    machine.wait(holding)
    taken = machine.facts("ada", TRY)
    assert taken["got"]
    assert taken["seconds"] < LEASE_S
    holding = hold(machine, "ada")
    kill_holder(machine, "ada")
    machine.wait(holding)
    taken = machine.facts("bob", TRY)
    assert taken["got"]
    assert taken["seconds"] >= LEASE_S
    assert "is silent" in taken["notices"][0]


@pytest.mark.skipif(not FULL, reason="20 s of waiting: set CELLBLOCK_NFS_FULL=1")
def test_a_host_that_is_cut_off_loses_the_volume_and_notices(machine: Machine) -> None:
    holding = hold(machine, "ada")
    machine.run("server", "ip", "link", "set", "ada", "down")
    try:
        deadline = time.monotonic() + 90
        while not (taken := machine.facts("bob", TRY))["got"]:
            assert time.monotonic() < deadline, taken
            time.sleep(1)
    finally:
        machine.run("server", "ip", "link", "set", "ada", "up")
    lost = machine.wait(holding)
    assert lost.status == 1
    assert "was taken over by" in lost.err


def test_hosts_at_once_never_both_hold_it(machine: Machine) -> None:
    """Each counts in a file that only who holds the lock may write, pausing between reading and writing."""
    rounds = 5
    script = (
        HOLD
        + f"""
counter, done = private.parent / "counter", 0
while done < {rounds}:
    try:
        with lock("counting", 30).held() as check:
            value = int(counter.read_text()) if counter.exists() else 0
            time.sleep(0.01)
            check()
            counter.write_text(str(value + 1))
            done += 1
    except CellblockError:
        time.sleep(0.02)
tell(done=done)
"""
    )
    started = [machine.start(host, *machine.script(script)) for host in ("ada", "bob", "ada", "bob")]
    for result in started:
        done = machine.wait(result)
        assert done.status == 0, done.err
        assert json.loads(done.out) == {"done": rounds}
    total = machine.run("server", "cat", "/srv/disk/volume/LOCK/counter").out
    assert int(total) == 4 * rounds
