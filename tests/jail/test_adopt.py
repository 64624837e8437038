# SPDX-License-Identifier: Apache-2.0
"""A tree that is there already becomes a volume: nothing in it changes, and upgrades merge into it."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from deb_trees import Deb, DebTree
from jail_trees import snapshot
from upgraded_jail import BAR, FOO, FOO2, Jail, kept_or_conflict

from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.adopt import AdoptResult, adopt
from cellblock.jail.assemble import assemble
from cellblock.jail.changes import changes
from cellblock.jail.verify import verify
from cellblock.jail.volume.volume import Volume
from tests.jail.manifests import read_manifest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="keeps owners: needs root")
CHILD = """
import sys
from pathlib import Path
from cellblock.events import Events
from cellblock.jail.adopt import adopt
adopt(Path(sys.argv[1]), Events())
"""


@pytest.fixture
def site(jail: Jail) -> Jail:
    """A site's own tree at the place of a volume's: two packages, one with changes, and what users made."""
    DebTree.make(jail.root, jail.debs, FOO, BAR)
    jail.path.chmod(0o755)
    jail.write("etc/foo.conf", "the site's\n")
    jail.write("usr/bin/bar", "#!/bin/sh\necho patched\n")
    jail.write("opt/tool/run", "the site's program\n")
    jail.write("home/ada/thesis", "of years\n")
    with (jail.root / "etc/passwd").open("a") as passwd:
        passwd.write("ada:x:1000:1000::/home/ada:/bin/sh\n")
    (jail.root / "usr/share/bar/data").unlink()
    return jail


def adopted(jail: Jail) -> AdoptResult:
    return adopt(jail.path, jail.events)


def test_nothing_in_the_tree_changes_and_the_manifest_has_what_packages_brought(site: Jail) -> None:
    before = snapshot(site.root)
    result = adopted(site)
    assert snapshot(site.root) == before
    assert result.files is not None
    assert result.files.packages == 2
    assert sorted(result.files.changed) == [b"etc/foo.conf", b"usr/bin/bar"]
    assert result.files.missing == [b"usr/share/bar/data"]
    listed = {entry.path for entry in read_manifest(Volume(site.path).manifest)}
    assert {b"", b"usr/bin/foo", b"usr/share/foo/data", b"etc/bar.conf"} <= listed
    assert not {b"etc/passwd", b"opt/tool/run", b"home/ada", b"etc/foo.conf", b"usr/bin/bar"} & listed
    found = verify(site.path, site.events, content=True)
    assert (found.n_damaged, found.n_users) == (0, 0)


def test_an_upgrade_brings_newer_packages_and_leaves_all_that_is_the_sites(site: Jail) -> None:
    adopted(site)
    site.image("new", FOO2, Deb("extra", "1"))
    plan = site.plan()
    site.upgrade()
    assert site.tree.dpkg("--audit") == ""
    assert site.tree.versions() == {"foo": "2", "bar": "1", "extra": "1"}
    assert site.read("usr/bin/foo") == "#!/bin/sh\necho foo 2\n"
    assert not (site.root / "usr/share/foo/only-1").exists()
    # What no package explains stays: changed files, accounts, folders, and packages that no image has.
    assert site.read("etc/foo.conf") == "the site's\n"
    assert site.read("etc/foo.conf.dpkg-dist") == "version = 2\n"
    assert kept_or_conflict(plan)["etc/foo.conf"] == "conflict"
    assert site.read("usr/bin/bar") == "#!/bin/sh\necho patched\n"
    assert site.read("home/ada/thesis") == "of years\n"
    assert site.read("opt/tool/run") == "the site's program\n"
    assert "ada:x:1000" in site.read("etc/passwd")
    state = Volume(site.path).state()
    assert state is not None
    assert not state.source.is_adopted


def test_the_next_upgrade_treats_the_image_as_the_image(site: Jail) -> None:
    adopted(site)
    extra = Deb("extra", "1")
    site.image("new", FOO2, extra)
    site.upgrade()
    site.image("newest", FOO2)
    site.upgrade("newest")
    assert site.tree.versions() == {"foo": "2", "bar": "1"}
    assert not (site.root / "usr/bin/extra").exists()


def test_a_rollback_brings_the_adopted_tree_back(site: Jail) -> None:
    adopted(site)
    site.image("new", FOO2, Deb("extra", "1"))
    before = {path: site.read(path) for path in ("usr/bin/foo", "etc/passwd", "var/lib/dpkg/status")}
    site.upgrade()
    site.rollback()
    assert {path: site.read(path) for path in before} == before
    assert site.tree.versions() == {"foo": "1", "bar": "1"}
    assert site.tree.dpkg("--audit") == ""
    state = Volume(site.path).state()
    assert state is not None
    assert state.source.is_adopted
    site.upgrade()  # and forward again
    assert site.tree.versions()["foo"] == "2"


def test_a_newer_package_of_the_sites_is_not_taken_back(site: Jail) -> None:
    site.tree.install(Deb("bar", "3"))
    adopted(site)
    site.image("new", FOO, Deb("bar", "2"))
    site.upgrade()
    assert site.tree.versions()["bar"] == "3"


def test_verify_finds_damage_and_says_where_the_file_is_to_be_had(site: Jail, tmp_path: Path) -> None:
    subprocess.run(["cp", "-a", str(site.root), str(tmp_path / "copy")], check=True)
    adopted(site)
    status = (site.root / "usr/bin/foo").stat()
    site.write("usr/bin/foo", "#!/bin/sh\necho fox 1\n")
    os.utime(site.root / "usr/bin/foo", ns=(status.st_mtime_ns, status.st_mtime_ns))
    assert [one.entry.path for one in verify(site.path, site.events, content=True).damaged] == [
        b"usr/bin/foo"
    ]
    with pytest.raises(CellblockError, match="no image has its files") as failure:
        verify(site.path, site.events, content=True, repair=True)
    assert "apt-get install --reinstall" in failure.value.hint
    source = str(tmp_path / "copy")
    assert verify(site.path, site.events, content=True, repair=True, source=source).repaired
    assert site.read("usr/bin/foo") == "#!/bin/sh\necho foo 1\n"


def test_diff_tells_the_sites_files(site: Jail) -> None:
    adopted(site)
    made = {one.path for one in changes(site.path)}
    assert {b"opt/tool/run", b"home/ada/thesis", b"etc/foo.conf", b"usr/bin/bar"} <= made
    assert b"usr/bin/foo" not in made


def test_hard_links_and_diverted_files_are_recorded_where_they_lie(site: Jail) -> None:
    os.link(site.root / "usr/bin/foo", site.root / "a-name-of-the-sites")
    site.tree.dpkg("-r", "bar")  # its files that were changed would be found so
    divert = ["dpkg-divert", f"--root={site.root}", "--local", "--rename", "--divert", "/usr/bin/foo.real"]
    subprocess.run([*divert, "--add", "/usr/bin/foo"], check=True, capture_output=True)
    site.write("usr/bin/foo", "a wrapper\n")
    adopted(site)
    listed = {entry.path: entry for entry in read_manifest(Volume(site.path).manifest)}
    assert listed[b"usr/bin/foo.real"].kind == "f"
    assert b"usr/bin/foo" not in listed
    assert b"a-name-of-the-sites" not in listed


def test_a_tree_elsewhere_becomes_the_root_by_one_rename(jail: Jail, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    DebTree.make(tree, jail.debs, FOO)
    before = snapshot(tree)
    with pytest.raises(CellblockError, match="no volume is named for") as failure:
        adopt(tree, jail.events)
    assert f"jail adopt {tree} {tmp_path / 'jail'}" in failure.value.hint
    assert snapshot(tree) == before
    assert adopt(tree, jail.events, volume=jail.path).changed
    assert not tree.exists()
    assert snapshot(jail.root) == before
    assert not adopt(tree, jail.events, volume=jail.path).changed
    assert not adopt(jail.root, jail.events, volume=jail.path).changed


def test_twice_is_once(site: Jail) -> None:
    first, records = adopted(site), snapshot(site.path / ".cellblock")
    second = adopted(site)
    assert (first.changed, second.changed, second.files) == (True, False, None)
    assert snapshot(site.path / ".cellblock") == records


def _symlink(jail: Jail) -> Path:
    link = jail.folder / "link"
    link.symlink_to(jail.path)
    return link


def _database_link(jail: Jail) -> Path:
    (jail.root / "var").rename(jail.folder / "var-outside")
    (jail.root / "var").symlink_to(jail.folder / "var-outside")
    return jail.path


def _owned_by_a_user(jail: Jail) -> Path:
    os.chown(jail.root, 1000, 1000)
    return jail.root


def _in_a_users_folder(jail: Jail) -> Path:
    os.chown(jail.folder, 1000, 1000)
    return jail.path


def _writable(jail: Jail) -> Path:
    jail.root.chmod(0o1777)
    return jail.path


def _rpm(jail: Jail) -> Path:
    (jail.root / "var/lib/dpkg").rename(jail.folder / "dpkg")
    (jail.root / "var/lib/rpm").mkdir()
    (jail.root / "var/lib/rpm/rpmdb.sqlite").touch()
    return jail.root


def _no_package(jail: Jail) -> Path:
    (jail.root / "var/lib/dpkg/status").write_text("")
    return jail.path


def _assembled(jail: Jail) -> Path:
    assemble(str(jail.image("image", FOO).root), jail.folder / "assembled", jail.events)
    return jail.folder / "assembled"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda jail: jail.folder / "nothing", "does not exist"),
        (lambda jail: jail.root / "etc/passwd", "is no directory"),
        (lambda jail: Path("/"), "is the root of this machine"),
        (_symlink, "is a symbolic link to .*volume"),
        (_database_link, "var is a link or no directory"),
        (_owned_by_a_user, "root is not root's alone to write .owner 1000"),
        (_in_a_users_folder, "is not root's alone to write .owner 1000"),
        (_writable, "is not root's alone to write .owner 0, mode 1777"),
        (_rpm, "its packages are of RPM"),
        (_no_package, "in which no package is installed"),
        (_assembled, "is a volume already, with "),
    ],
    ids=lambda one: getattr(one, "__name__", None) if callable(one) else "",
)
def test_what_is_no_tree_is_refused(site: Jail, make: Callable[[Jail], Path], message: str) -> None:
    directory = make(site)
    try:
        with pytest.raises(CellblockError, match=message) as failure:
            adopt(directory, site.events)
        assert "nothing was changed" in failure.value.message
        assert failure.value.hint
    finally:
        os.chown(site.folder, 0, 0)
    assert not (site.path / ".cellblock/state.json").exists()


def test_mounts_and_layers_of_an_overlay_are_not_the_tree(site: Jail, tmp_path: Path) -> None:
    def tried(prepare: str, volume: Path = site.path) -> str:
        run = f"{prepare}\nexec {sys.executable} -c '{CHILD}' {volume}"
        done = subprocess.run(
            ["unshare", "-m", "sh", "-ec", run], capture_output=True, text=True, check=False
        )
        return done.stderr if done.returncode else ""

    assert "is in use: " in tried(f"mount -t tmpfs tmpfs {site.root}/tmp")
    assert "is a mount of its own" in tried(f"mount --bind {site.root} {site.root}")
    for name in ("upper", "work", "merged"):
        (tmp_path / name).mkdir(mode=0o755)
    overlay = f"mount -t overlay overlay -o lowerdir={site.path},upperdir={tmp_path}/upper"
    overlay += f",workdir={tmp_path}/work {tmp_path}/merged"
    assert "is a layer of the overlay at" in tried(overlay)
    # The merged view itself is a tree: its records go to the upper layer, beside what changes.
    assert tried(overlay, tmp_path / "merged") == ""
    assert (tmp_path / "upper/.cellblock/state.json").exists()
    assert not (site.path / ".cellblock").exists()


def test_apt_at_work_is_waited_for_by_people(site: Jail) -> None:
    with (site.root / "var/lib/dpkg/lock").open("r+") as lock:
        child = os.fork()
        if not child:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            signal.pause()
        try:
            while True:
                try:
                    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    fcntl.lockf(lock, fcntl.LOCK_UN)
                except BlockingIOError:
                    break
            with pytest.raises(CellblockError, match="apt or dpkg is at work"):
                adopted(site)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert adopted(site).changed


def killed_at(moment: int, place: Path, volume: Path | None) -> bool:
    """Run `adopt` in a process that is killed at that call which changes a filesystem; whether it was."""
    child = os.fork()
    if not child:
        count = 0

        def counted(function: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object, **options: object) -> object:
                nonlocal count
                count += 1
                if count == moment:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **options)

            return call

        for name in ("rename", "replace", "link", "unlink", "mkdir", "fsync"):
            setattr(os, name, counted(getattr(os, name)))
        try:
            adopt(place, Events(), volume=volume)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("moves", [False, True])
def test_a_kill_at_any_call_leaves_no_volume_or_a_whole_one(site: Jail, moves: bool) -> None:
    place, private = site.folder / "elsewhere" if moves else site.path, site.path / ".cellblock"
    if moves:
        site.root.rename(place)
    before = snapshot(place if moves else site.root)
    moments = 1
    while killed_at(moments, place, site.path if moves else None):
        is_volume = site.root.exists() and (private / "state.json").exists()
        assert snapshot(site.root if site.root.exists() else place) == before
        if is_volume:  # it was killed at its very end
            assert len(read_manifest(Volume(site.path).manifest)) == 12
            assert (private / "controls").stat().st_size
            shutil.rmtree(private)
            if moves:
                site.root.rename(place)
        moments += 1
    assert moments > 20
    assert snapshot(site.root) == before
    site.image("new", FOO2)
    site.upgrade()
    assert site.tree.versions()["foo"] == "2"


def test_of_two_at_once_one_is_told_who_is_at_work(site: Jail) -> None:
    Volume(site.path).prepare()
    with (
        Volume(site.path).lock("jail adopt, another one"),
        pytest.raises(CellblockError, match="is being written by `jail adopt, another one`"),
    ):
        adopted(site)
    children = [
        subprocess.Popen([sys.executable, "-c", CHILD, str(site.path)], stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    errors = [child.communicate()[1].decode() for child in children]
    assert any(child.returncode == 0 for child in children)
    assert all("is being written by" in error for error in errors if error)
    assert verify(site.path, site.events).is_clean


def test_packages_that_change_meanwhile(site: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    from cellblock.jail import adopt as code

    def and_a_user_is_added(*arguments: object) -> object:
        result = read(*arguments)  # type: ignore[arg-type]
        with (site.root / "etc/passwd").open("a") as passwd:
            passwd.write("eve:x:1001:1001::/:/bin/sh\n")
        return result

    read = code.read_installed
    monkeypatch.setattr(code, "read_installed", and_a_user_is_added)
    with pytest.raises(CellblockError, match="changed while it was read"):
        adopted(site)
    assert not (site.path / ".cellblock/state.json").exists()


def test_hostile_records_lead_out_of_no_tree(site: Jail, tmp_path: Path) -> None:
    """Users of the tree write dpkg's lists, and put links and FIFOs in the place of files."""
    (tmp_path / "secret").write_text("of the host")
    os.mkfifo(site.root / "usr/bin/fifo")
    (site.root / "usr/share/foo/out").symlink_to(tmp_path)
    lists = site.root / "var/lib/dpkg/info/foo.list"
    named = ("/usr/bin/fifo", "/usr/share/foo/out/secret", "/../../secret", "/usr/share/foo/out")
    lists.write_text(lists.read_text() + "".join(f"{path}\n" for path in named))
    adopted(site)
    listed = {entry.path: entry for entry in read_manifest(Volume(site.path).manifest)}
    assert listed[b"usr/share/foo/out"].kind == "l"
    assert not {path for path in listed if b"secret" in path}
