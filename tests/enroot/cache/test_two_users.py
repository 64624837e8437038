# SPDX-License-Identifier: Apache-2.0
"""One administrator's directory for users who do not trust each other: they share what can be checked, and
can at most delay each other, for a bounded time."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.enroot.cache.conftest import Node, User

# What the hostile user runs: `d` is the administrator's directory.
HOSTILE = """\
import fcntl, os, shutil, sys, time
d, victim, name, uid = sys.argv[1:5]
os.setgroups([])
os.setresgid(int(uid), int(uid), int(uid))
os.setresuid(int(uid), int(uid), int(uid))
"""


def hostile(node: Node, script: str, name: str = "") -> subprocess.Popen[str]:
    """`script` as user b; it has ended, or printed "ready"."""
    words = [str(node.shared), str(node.a.uid), name, str(node.b.uid)]
    process = subprocess.Popen(
        # As root, who alone may read this Python; it becomes the user before the script begins.
        [sys.executable, "-c", HOSTILE + textwrap.dedent(script), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() in ("ready\n", ""), process.communicate()
    return process


def end(process: subprocess.Popen[str]) -> str:
    """What it said, and that it did all that it wanted."""
    out, err = process.communicate("")
    assert process.returncode == 0, err
    return out


def trusting(user: User, account: str | None) -> User:
    return dataclasses.replace(user, settings={"ENROOT_SHARED_CACHE_TRUST": account or ""})


def test_images_come_from_oneself_root_and_the_trusted(node: Node) -> None:
    assert node.a.image("x") == "made"
    assert node.a.image("x") == "found"
    assert (node.a.shared_store / "images").is_dir()
    assert node.b.image("x") == "made"
    assert trusting(node.root, node.a.account).image("x") == "found"
    assert trusting(node.root, str(node.a.uid)).image("x") == "found"
    assert trusting(node.root, "nobody-of-this-name").image("y") == "made"
    assert node.a.image("y") == node.b.image("y") == "found"


def test_what_took_credentials_stays_with_its_user(node: Node) -> None:
    done = node.root("image", "secret", "64", "0", "-", "private")
    assert done.stdout.startswith("made")
    assert not (node.root.shared_store / "images").exists()
    assert (node.root.store / "images").exists()
    assert node.a.image("secret") == "made"
    allowed = dataclasses.replace(node.root, settings={"ENROOT_SHARED_CACHE_PRIVATE": "yes"})
    assert allowed("image", "open", "64", "0", "-", "private").returncode == 0
    assert node.a.image("open") == "found"


def test_layers_come_from_anybody_because_they_are_checked(node: Node) -> None:
    assert node.a.blob("l").stdout.split()[0] == "made"
    assert node.b.blob("l").stdout.split()[0] == "foreign"
    assert node.a.blob("l").stdout.split()[0] == "found"
    assert node.a.made() == ["l"]


def test_a_false_layer_costs_one_more_download(node: Node) -> None:
    assert node.b.blob("l", "corrupt").stdout.split()[0] == "made"
    done = node.a.blob("l")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:2] == ["foreign", "made"]
    assert "not what its name says" in done.stderr
    assert node.a.blob("l").stdout.split()[0] == "found"


@pytest.mark.parametrize("kind", ["fifo", "link", "directory", "longer", "open to all"])
def test_a_layer_that_is_no_plain_file_of_its_owner_is_not_used(node: Node, kind: str) -> None:
    node.b.blob("l")
    blob = next((node.b.shared_store / "blobs").iterdir())
    script = {
        "fifo": "os.unlink(name); os.mkfifo(name, 0o644)",
        "link": "os.unlink(name); os.symlink('/etc/shadow', name)",
        "directory": "os.unlink(name); os.mkdir(name)",
        "longer": "os.chmod(name, 0o644); os.truncate(name, 1 << 40)",
        "open to all": "os.chmod(name, 0o666)",
    }[kind]
    end(hostile(node, script, str(blob)))
    assert node.a.blob("l").stdout.split()[0] == "made"


def test_nobody_writes_into_anothers_store(node: Node) -> None:
    node.a.image("x")
    end(hostile(node, """
        store = f"{d}/users/{victim}"
        image = f"{store}/images/" + os.listdir(f"{store}/images")[0]
        tries = [
            lambda: os.rename(store, store + ".gone"), lambda: os.mkdir(f"{store}/images/x"),
            lambda: os.unlink(f"{image}/image.sqsh"), lambda: open(f"{image}/image.sqsh", "r+b"),
            lambda: os.rename(image, f"{d}/users/{os.getuid()}"), lambda: os.chmod(store, 0o777),
            lambda: os.link(f"{image}/image.sqsh", f"{d}/users/{victim}/images/other"),
            lambda: os.mkdir(f"{d}/other"), lambda: os.utime(f"{image}/image.sqsh"),
        ]
        for i, each in enumerate(tries):
            try:
                each()
            except PermissionError:
                continue
            sys.exit(f"{i} was possible")
    """))  # fmt: skip
    assert node.a.image("x") == "found"


def test_a_store_that_another_made_is_not_ones_own(node: Node) -> None:
    """The name is taken; what is in it is never run. One's own cache is used instead."""
    end(hostile(node, 'os.mkdir(f"{d}/users/{victim}", 0o755)'))
    done = node.a("image", "x", "64", "0", "-")
    assert done.stdout.startswith("made")
    assert f"should belong to uid {node.a.uid}" in done.stderr
    # Root's is there from the beginning, and nobody else's to take.
    assert node.shared.joinpath("users/0").stat().st_uid == 0
    assert node.a.image("x") == "found"
    assert (node.a.store / "images").exists()


def test_a_planted_image_is_never_used(node: Node) -> None:
    """b copies root's store, with another image under its key, to all names that b can make."""
    good = node.root.entry("x")
    other = node.root.entry("y")
    shutil.rmtree(good)
    end(hostile(node, """
        root = f"{d}/users/0"
        store = f"{d}/users/{os.getuid()}"
        os.makedirs(f"{store}/images")
        os.chmod(store, 0o755)
        shutil.copytree(name, f"{store}/images/planted")
        for target in (f"{d}/users/{victim}", f"{d}/users/00", f"{d}/users/+0", f"{d}/users/0 "):
            shutil.copytree(store, target)
        try:
            os.symlink(store, f"{d}/users/1")
        except OSError:
            pass
    """, str(other)))  # fmt: skip
    planted = node.b.shared_store / "images/planted"
    planted.rename(planted.with_name(good.name))
    for folder in ("00", "+0", "0 ", str(node.a.uid)):
        (node.shared / "users" / folder / "images/planted").rename(
            node.shared / "users" / folder / "images" / good.name
        )
    for user in (node.a, node.root):
        assert user.image("x") == "made"
        assert user.image("x") == "found"


def test_a_link_to_roots_image_under_another_key_is_not_used(node: Node) -> None:
    """As where everybody may make hard links (fs.protected_hardlinks=0): into directories of b alone."""
    good = node.root.entry("x")
    end(hostile(node, 'os.makedirs(f"{d}/users/{os.getuid()}/images/" + name)', "0" * 64))
    planted = node.b.shared_store / "images" / ("0" * 64)
    os.link(good / "image.sqsh", planted / "image.sqsh")
    os.link(good / "record", planted / "record")
    planted.rename(planted.with_name(good.name))
    for path in (node.b.shared_store, node.b.shared_store / "images"):
        path.chmod(0o755)
    # A trusting user looks there; files of root's in a store of b's are not b's.
    shutil.rmtree(node.root.shared_store / "images")
    assert trusting(node.a, node.b.account).image("x") == "made"


@pytest.mark.parametrize("place", ["image", "record", "entry", "images", "store"])
def test_what_others_could_write_is_not_trusted(node: Node, place: str) -> None:
    entry = node.root.entry("x")
    path = {
        "image": entry / "image.sqsh",
        "record": entry / "record",
        "entry": entry,
        "images": entry.parent,
        "store": entry.parents[1],
    }[place]
    path.chmod(path.stat().st_mode | 0o020)
    done = node.a("image", "x", "64", "0", "-")
    assert done.stdout.startswith("made")
    assert "not used" in done.stderr or "chmod go-w" in done.stderr


def test_an_access_list_is_writing_too(node: Node) -> None:
    if not shutil.which("setfacl"):
        pytest.skip("setfacl (acl) is not installed")
    entry = node.root.entry("x")
    subprocess.run(["setfacl", "-m", f"u:{node.b.account}:rw", entry / "image.sqsh"], check=True)
    assert node.a.image("x") == "made"


@pytest.mark.parametrize(
    ("folder", "mode", "advice"),
    [(".", 0o777, "chmod go-w"), (".", 0o775, "chmod go-w"), ("users", 0o777, "chmod 1777")],
    ids=["all", "group", "users, not sticky"],
)
def test_a_directory_that_is_not_the_administrators_alone_is_refused(
    node: Node, folder: str, mode: int, advice: str
) -> None:
    node.root.entry("x")
    (node.shared / folder).chmod(mode)
    done = node.a("image", "x", "64", "0", "-")
    assert done.stdout.startswith("made")
    assert advice in done.stderr


def test_root_alone_writes_where_the_administrator_wants_it(node: Node) -> None:
    (node.shared / "users").chmod(0o755)
    node.root.entry("x")
    assert node.a.image("x") == "found"
    done = node.a("image", "y", "64", "0", "-")
    assert (done.stdout.split()[0], done.stderr) == ("made", "")
    assert (node.a.store / "images").is_dir()


LAYER_HOLDER = """
    node = f"{d}/locks/" + name
    fd = os.open(node, os.O_RDWR | os.O_CREAT, 0o666)
    os.fchmod(fd, 0o666)
    fcntl.lockf(fd, fcntl.LOCK_EX)
    print("ready", flush=True)
    for i in range(1 << 30):
        os.pwrite(fd, b"%20d %20d %10d %-64s" % (i * PROGRESS, 1 << 40, 1, b"\\x1b[31mhost"), 0)
        time.sleep(0.01)
"""


@pytest.mark.parametrize("advances", [0, 1], ids=["stuck", "seems to advance"])
def test_a_lock_held_for_ever_delays_for_a_bounded_time(node: Node, advances: int) -> None:
    node.b.blob("l")
    blob = next((node.b.shared_store / "blobs").iterdir())
    blob.unlink()
    holder = hostile(node, LAYER_HOLDER.replace("PROGRESS", str(advances * 1000000)), blob.name)
    # One that advances may be held up for a moment.
    settings = {"ENROOT_CACHE_PATIENCE": "3" if advances else "1", "ENROOT_CACHE_WAIT": "3"}
    started = time.monotonic()
    done = dataclasses.replace(node.a, settings=settings).blob("l")
    took = time.monotonic() - started
    holder.kill()
    holder.communicate()
    assert done.stdout.split()[0] == "made"
    assert (0.9 + 2 * advances) < took < 45
    assert "going on alone" in done.stderr
    assert "\x1b[31mhost" not in done.stderr


@pytest.mark.parametrize("kind", ["closed", "fifo", "link", "directory"])
def test_a_lock_that_cannot_be_had_delays_nobody(node: Node, kind: str) -> None:
    node.b.blob("l")
    blob = next((node.b.shared_store / "blobs").iterdir())
    name = blob.name
    blob.unlink()
    script = {
        "closed": "os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))",
        "fifo": "os.mkfifo(path); os.chmod(path, 0o666)",
        "link": "os.symlink('/etc/passwd', path)",
        "directory": "os.mkdir(path)",
    }[kind]
    end(hostile(node, f'path = f"{{d}}/locks/{name}"; {script}'))
    started = time.monotonic()
    assert node.a.blob("l").stdout.split()[0] == "made"
    assert time.monotonic() - started < 45  # patience with a lock that is held is 60


def test_thousands_of_names_delay_nobody_for_long(node: Node) -> None:
    end(hostile(node, """
        os.chdir(f"{d}/users")
        for i in range(3000):
            os.mkdir(str(100000 + i))
    """))  # fmt: skip
    started = time.monotonic()
    assert node.a.blob("l").stdout.split()[0] == "made"
    assert node.a.image("x") == "made"
    assert time.monotonic() - started < 30


def test_two_users_download_a_layer_once(node: Node) -> None:
    users = (node.a, node.b)
    running = [users[i % 2].popen("blob", "l", "1024", "20") for i in range(20)]
    results = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0] * 20, results
    assert node.a.made() == ["l"]
    assert len({out.split()[-1] for out, _ in results}) == 1
    assert list((node.shared / "locks").iterdir()) == []


def test_a_killed_download_leaves_nothing(node: Node) -> None:
    """b takes over the lock of a, which only a can remove, and does the next time."""
    process = node.a.popen("blob", "l", "4096", "50")
    assert process.stdout is not None
    assert process.stdout.readline() == "made\n"
    process.kill()
    process.communicate()
    assert len(list((node.shared / "locks").iterdir())) == 1
    assert node.b("blob", "l", "4096", "0").stdout.split()[0] == "made"
    node.a("cache", "ls")
    assert list((node.shared / "locks").iterdir()) == []
    assert list((node.a.shared_store / "drafts").iterdir()) == []


def test_what_others_run_is_never_a_users_hard_link(node: Node) -> None:
    node.root.image("x", "x.sqsh")
    entry = node.root.entry("x")
    assert (entry / "image.sqsh").stat().st_nlink == 1
    (node.root.home / "x.sqsh").write_bytes(b"")
    assert node.a.image("x", "x.sqsh") == "found"
    assert (node.a.home / "x.sqsh").stat().st_size == 256 * 1024
    assert (node.a.home / "x.sqsh").stat().st_uid == node.a.uid
    assert (entry / "image.sqsh").stat().st_nlink == 1
    # Nobody but a runs what lies in the store of a.
    node.a.image("y", "y.sqsh")
    assert (node.a.entry("y") / "image.sqsh").stat().st_nlink in (1, 2)


def test_others_using_it_keeps_it(node: Node) -> None:
    """Root's entry, used by a: the mark is a's, and root's trimming looks at it."""
    old, used = node.root.entry("old", 1024), node.root.entry("used", 1024)
    now = time.time()
    for entry in (old, used):
        then = int(now) - 5000
        os.utime(entry / "image.sqsh", ns=(then * 10**9, then * 10**9))
        record = (entry / "record").read_text().splitlines()
        (entry / "record").write_text(
            "\n".join(f"changed {then}.000000000" if "changed" in line else line for line in record) + "\n"
        )
        os.utime(node.root.shared_store / "used" / entry.name, (then, then))
    assert node.a.image("used") == "found"
    done = node.root("cache", "prune", "--older", "1h")
    assert "freed 1 MB, 1 MB are left" in done.stderr
    assert (used.exists(), old.exists()) == (True, False)


def test_a_users_lock_keeps_an_image_until_root_insists(node: Node) -> None:
    entry = node.root.entry("x")
    holder = node.a.popen("hold", "x")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "found\n"
    assert node.root("cache", "prune", "--all").returncode == 0
    assert entry.exists()
    assert node.root("cache", "prune", "--all", "--force").returncode == 0
    assert not entry.exists()
    holder.communicate("")


def test_root_looks_after_all_users(node: Node) -> None:
    node.a.image("x")
    node.b.image("y")
    rows = node.root("cache", "ls", "--all-users").stdout.splitlines()[1:]
    assert {row.split()[3] for row in rows} == {node.a.account, node.b.account}
    assert node.a("cache", "prune", "--all", "--all-users").returncode == 1
    assert node.root("cache", "verify", "--all-users").returncode == 0
    assert node.root("cache", "prune", "--all", "--all-users").returncode == 0
    assert list(node.a.shared_store.glob("images/*")) == []
    assert node.root("cache", "ls", "--all-users").stdout.count("\n") == 1


def test_root_follows_no_link_when_it_removes(node: Node, base: Path) -> None:
    """b makes its store look as if something of root's were in it."""
    treasure = base / "treasure"
    (treasure / "images").mkdir(parents=True)
    (treasure / "images/image.sqsh").write_text("keep me")
    node.b.image("y")
    end(hostile(node, """
        store = f"{d}/users/{os.getuid()}"
        key = os.listdir(f"{store}/images")[0]
        os.rename(f"{store}/images/{key}", f"{store}/kept")
        os.symlink(name + "/images", f"{store}/images/{key}")
        os.rename(f"{store}/blobs", f"{store}/blobs.old") if os.path.exists(f"{store}/blobs") else None
        os.symlink(name, f"{store}/blobs")
    """, str(treasure)))  # fmt: skip
    node.root("cache", "prune", "--all", "--all-users", "--force")
    node.root("cache", "verify", "--repair", "--all-users")
    assert (treasure / "images/image.sqsh").read_text() == "keep me"


def test_only_root_makes_the_directory(node: Node, base: Path) -> None:
    assert node.a("cache", "init", str(node.a.home / "mine")).returncode == 1
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (node.shared, *node.shared.iterdir())}
    assert modes == {"shared": 0o755, "users": 0o1777, "locks": 0o1777}
