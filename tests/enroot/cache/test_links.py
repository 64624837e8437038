# SPDX-License-Identifier: Apache-2.0
"""Files under names of the shared cache that were never made for it, where nothing protects from links.

That is fs.protected_hardlinks, fs.protected_symlinks, fs.protected_fifos and fs.protected_regular at 0.
The sysctls are the machine's own and left alone: root makes the links that a user could make there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.enroot.cache.conftest import Node, User

TEXT = "a file that has nothing to do with any cache\n"


def layer(node: Node) -> str:
    """The name of a layer that nobody has, and of its lock."""
    node.b.blob("l")
    blob = next((node.b.shared_store / "blobs").iterdir())
    blob.unlink()
    return blob.name


def owned(path: Path, user: User, mode: int = 0o644) -> Path:
    path.write_text(TEXT)
    path.chmod(mode)
    os.chown(path, user.uid, -1)
    return path


@pytest.mark.parametrize("who", ["user", "root"])
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666])
def test_a_file_of_ones_own_linked_as_a_lock_keeps_its_content(node: Node, who: str, mode: int) -> None:
    victim = node.root if who == "root" else node.a
    name = layer(node)
    file = owned(victim.home / "diary", victim, mode)
    os.link(file, node.shared / "locks" / name)
    assert victim.blob("l").stdout.split()[0] == "made"
    assert (file.read_text(), file.stat().st_mode & 0o777, file.stat().st_nlink) == (TEXT, mode, 1)


def test_a_file_of_ones_own_moved_there_keeps_its_content(node: Node) -> None:
    """From a directory of the other's: the one thing that this user cannot do with it is write."""
    name = layer(node)
    file = owned(node.shared / "locks" / name, node.a)
    other = Path(f"{file}.open")
    descriptor = os.open(file, os.O_RDONLY)
    assert node.a.blob("l").stdout.split()[0] == "made"
    assert os.read(descriptor, 1000).decode() == TEXT
    os.close(descriptor)
    assert not file.exists()
    assert not other.exists()


@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_root_writes_into_nobodys_file_that_is_linked_as_a_lock(node: Node, mode: int) -> None:
    name = layer(node)
    file = owned(node.a.home / "diary", node.a, mode)
    os.link(file, node.shared / "locks" / name)
    assert node.root.blob("l").stdout.split()[0] == "made"
    assert (file.read_text(), file.stat().st_nlink) == (TEXT, 1)


def test_another_users_file_linked_as_a_lock_keeps_its_content(node: Node) -> None:
    """b links a file of a third user's that all may write, where only its path kept others out."""
    name = layer(node)
    file = owned(node.root.home / "shared-notes", node.root, 0o666)
    os.link(file, node.shared / "locks" / name)
    assert node.a.blob("l").stdout.split()[0] == "made"
    assert file.read_text() == TEXT


def test_sweeping_locks_removes_names_and_no_content(node: Node) -> None:
    file = owned(node.a.home / "diary", node.a)
    os.link(file, node.shared / "locks" / "anything")
    assert node.a("cache", "ls").returncode == 0
    assert (file.read_text(), file.stat().st_nlink) == (TEXT, 1)


@pytest.mark.parametrize("place", ["locks", "users"])
def test_a_link_in_the_place_of_a_directory_leads_nowhere(node: Node, base: Path, place: str) -> None:
    """Even root's own, where somebody could exchange it."""
    treasure = base / "treasure"
    treasure.mkdir(mode=0o777)
    treasure.chmod(0o777)
    (node.shared / place).rename(base / place)
    (node.shared / place).symlink_to(treasure)
    assert node.a.blob("l").stdout.split()[0] == "made"
    assert list(treasure.iterdir()) == []


@pytest.mark.parametrize("kind", ["layer", "image"])
def test_what_is_made_of_holes_is_not_read(node: Node, kind: str) -> None:
    """Four terabytes that take no room: whoever compares their digests is at it for an hour."""
    if kind == "layer":
        node.b.blob("l")
        file = next((node.b.shared_store / "blobs").iterdir())
    else:
        entry = node.b.entry("x")
        file = entry / "image.sqsh"
    size = 1 << 42
    file.chmod(0o644)
    os.truncate(file, 0)
    os.truncate(file, size)
    if kind == "image":
        changed = file.stat().st_mtime_ns
        record = [
            f"size {size}" if line.startswith("size ")
            else f"changed {changed // 10**9}.{changed % 10**9:09}" if line.startswith("changed ")
            else line
            for line in (entry / "record").read_text().splitlines()
        ]  # fmt: skip
        (entry / "record").chmod(0o644)
        (entry / "record").write_text("\n".join(record) + "\n")
    done = node.root("cache", "verify", "--all-users")
    assert "made of holes, and is not read" in done.stderr
    assert done.returncode == 1


def test_names_and_records_of_others_say_nothing_to_a_terminal(node: Node) -> None:
    """Root lists what all have: a name of 64 characters, and a digest, may be anything."""
    escape = "\x1b]0;owned\x07"
    entry = node.b.entry("x")
    record = entry / "record"
    text = record.read_text()
    record.chmod(0o644)
    record.write_text(text.replace("digest sha256:", f"digest {escape}"))
    blobs = node.b.shared_store / "blobs"
    blobs.mkdir(exist_ok=True)
    blobs.chmod(0o755)
    planted = owned(blobs / (escape + "0" * (64 - len(escape))), node.b)
    os.chown(blobs, node.b.uid, -1)
    done = node.root("cache", "ls", "--all-users")
    assert "\x1b" not in done.stdout + done.stderr
    assert planted.name not in done.stdout
    assert node.root("cache", "verify", "--all-users").stderr.count("\x1b") == 0


def test_what_turns_out_private_is_not_where_others_look(node: Node) -> None:
    for kind in ("image", "blob"):
        words = (kind, "x", "256", "0", *(["-"] if kind == "image" else []))
        assert node.a(*words, "late").stdout.split()[0] == "made"
        assert node.a(*words).stdout.split()[0] == ("found" if kind == "image" else "made")
    assert list(node.a.shared_store.glob("images/*")) == []
    assert list(node.a.shared_store.glob("drafts/*")) == []


def test_a_draft_for_all_is_nobody_elses_to_read(node: Node) -> None:
    """Until it is whole it is not known whether they may."""
    process = node.a.popen("image", "x", "1024", "30", "-")
    assert process.stdout is not None
    assert process.stdout.readline() == "made\n"
    draft = next((node.a.shared_store / "drafts").iterdir())
    assert draft.stat().st_mode & 0o777 == 0o700
    look = ["setpriv", f"--reuid={node.b.account}", f"--regid={node.b.account}", "--clear-groups"]
    assert subprocess.run([*look, "cat", f"{draft}/image.sqsh"], capture_output=True).returncode
    process.kill()
    process.communicate()


def test_without_a_personal_cache_what_is_private_is_kept_nowhere(node: Node) -> None:
    shutil.rmtree(node.a.home / ".cache", ignore_errors=True)
    (node.a.home / ".cache").write_text("no directory")
    done = node.a("image", "x", "256", "0", "x.sqsh", "late")
    assert done.returncode == 0, done.stderr
    assert "there is no personal cache" in done.stderr
    assert (node.a.home / "x.sqsh").stat().st_size == 256 * 1024
    assert list(node.a.shared_store.glob("images/*")) == []
