# SPDX-License-Identifier: Apache-2.0
"""jail-accounts: the jail's accounts as a node gets them, whatever root in the jail makes of them."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.spank_jail.test_c_units import build, make, tools
from tests.spank_jail.waiting import PATIENCE_S, wait_until

__all__ = ["build", "tools"]  # fixtures

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it gives up root's rights")
FILES = ("passwd", "group", "shadow")
SHADOW_GID = 4242


@dataclass(frozen=True)
class Node:
    """A jail's /etc, a node's own, and the directory for copies."""

    program: Path
    base: Path

    @property
    def etc(self) -> Path:
        """The jail's, which its people write."""
        return self.base / "jail/etc"

    @property
    def target(self) -> Path:
        """Where copies lie."""
        return self.base / "copies"

    @property
    def argv(self) -> list[str]:
        """The program with its directories."""
        jail, own = self.base / "jail", self.base / "own"
        return [str(self.program), f"--jail={jail}", f"--target={self.target}", f"--own={own}"]

    def once(self) -> subprocess.CompletedProcess[str]:
        """One copy; it must never wait for anybody."""
        return subprocess.run(
            [*self.argv, "--once"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    def add(self, name: str, uid: int) -> None:
        """A user more, as useradd does it: files are replaced by rename."""
        lines = {
            "passwd": f"{name}:x:{uid}:{uid}::/home/{name}:/bin/bash\n",
            "group": f"{name}:x:{uid}:\n",
            "shadow": f"{name}:!:19000::::::\n",
        }
        for file, line in lines.items():
            new = self.etc / f"{file}+"
            new.write_text((self.etc / file).read_text() + line)
            new.rename(self.etc / file)

    def copied(self, file: str = "passwd") -> str:
        """The copy of a file; empty while there is none."""
        path = self.target / file
        return path.read_text() if path.exists() else ""


@pytest.fixture
def node(build: Path, tmp_path: Path) -> Node:
    """A jail with root, the user ann and the group lab."""
    done = make(build, "node")
    assert done.returncode == 0, done.stdout + done.stderr
    node = Node(build / "jail-accounts", tmp_path)
    for folder in (node.etc, node.target, tmp_path / "own"):
        folder.mkdir(parents=True)
    (tmp_path / "own/passwd").write_text("root:x:0:0::/root:/bin/bash\nslurm:x:64030:64030::/:/bin/false\n")
    (tmp_path / "own/group").write_text(f"root:x:0:\nshadow:x:{SHADOW_GID}:\nslurm:x:64030:\n")
    ann = "ann:x:1000:1000:Ann:/home/ann:/bin/zsh\n"
    (node.etc / "passwd").write_text(f"root:x:0:0:root:/root:/bin/bash\n{ann}")
    (node.etc / "group").write_text("root:x:0:ann\nshadow:x:42:ann\nann:x:1000:\nlab:x:2000:ann\n")
    (node.etc / "shadow").write_text("root:*:1::::::\nann:$y$j9T$salt$hash:19000:0:99999:7:::\n")
    (node.etc / "shadow").chmod(0o640)
    return node


@contextmanager
def following(node: Node) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The daemon and its log."""
    log = node.base / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(node.argv, stderr=stream)
    try:
        yield process, log
    finally:
        process.kill()
        process.wait()


def test_ordinary_accounts_are_copied_without_what_only_the_jail_needs(node: Node) -> None:
    done = node.once()
    assert (done.returncode, done.stderr) == (0, "")
    assert node.copied() == "ann:x:1000:1000::/home/ann:/bin/zsh\n"
    assert node.copied("group") == "ann:x:1000:\nlab:x:2000:ann\n"
    assert node.copied("shadow") == "ann:*:19000:0:99999:7:::\n"
    modes = {name: (node.target / name).stat() for name in FILES}
    assert {name: stat.S_IMODE(st.st_mode) for name, st in modes.items()} == {
        "passwd": 0o644, "group": 0o644, "shadow": 0o640,
    }  # fmt: skip
    assert {st.st_uid for st in modes.values()} == {0}
    assert modes["shadow"].st_gid == SHADOW_GID
    assert sorted(path.name for path in node.target.iterdir()) == sorted(FILES)


def test_the_etc_itself_can_be_named(node: Node) -> None:
    argv = [*node.argv[:1], f"--etc={node.etc}", *node.argv[2:], "--once"]
    assert subprocess.run(argv, timeout=PATIENCE_S, check=False).returncode == 0
    assert node.copied()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _link_beside(path: Path) -> None:
    (path.parent / "other").write_text("eve:x:1005:1005::/:/bin/sh\n")
    path.symlink_to("other")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def _device(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))


def _big(path: Path) -> None:
    path.touch()
    os.truncate(path, 16 * 2**20 + 1)


def _missing(path: Path) -> None:
    pass


def _directory(path: Path) -> None:
    path.mkdir()


def _empty(path: Path) -> None:
    path.touch()


def _cut(path: Path) -> None:
    path.write_text("eve:x:1005:1005::/home/e")


def _not_roots(path: Path) -> None:
    path.write_text("eve:x:1005:1005::/:/bin/sh\n")
    path.chmod(0o600)
    os.chown(path, 1005, 1005)


UNUSABLE = [
    _fifo,
    _link,
    _link_beside,
    _socket,
    _device,
    _big,
    _missing,
    _directory,
    _empty,
    _cut,
    _not_roots,
]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("become", UNUSABLE, ids=lambda one: one.__name__)
def test_of_unusable_files_nothing_is_taken(node: Node, become: Callable[[Path], None], file: str) -> None:
    node.once()
    before = [node.copied(name) for name in FILES]
    node.add("bob", 1001)
    (node.etc / file).unlink()
    become(node.etc / file)
    done = node.once()
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "what was copied last stays: " in done.stderr
    assert file in done.stderr
    assert [node.copied(name) for name in FILES] == before


def test_an_etc_that_is_a_link_is_not_followed(node: Node) -> None:
    outside = node.base / "outside"
    node.etc.rename(outside)
    node.etc.symlink_to(outside)
    done = node.once()
    assert done.returncode == 1
    assert "/etc must be a directory and no link" in done.stderr
    assert not node.copied()


def test_a_file_that_somebody_holds_a_lease_on_is_not_waited_for(node: Node) -> None:
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        with (node.etc / "passwd").open("r+") as held:
            fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            done = node.once()
    finally:
        signal.signal(signal.SIGIO, before)
    assert done.returncode == 1
    assert "EAGAIN" in done.stderr


def test_what_is_left_out_is_told_without_a_byte_of_it(node: Node) -> None:
    with (node.etc / "passwd").open("a") as file:
        file.write("\x1b]0;evil\x07:x:1002:1002::/:/bin/sh\nslurm:x:1003:1003::/:/bin/sh\n")
    done = node.once()
    assert done.returncode == 0
    assert done.stderr == (
        "jail-accounts: passwd of the jail: 2 left out, the first is line 3: it has a control character\n"
    )


def test_a_change_is_followed(node: Node) -> None:
    with following(node) as (_, log):
        wait_until(lambda: "ann" in node.copied())
        node.add("bob", 1001)
        wait_until(lambda: "bob:x:1001" in node.copied() and "bob:!:" in node.copied("shadow"))
        # Of one size, in place, with the time put back.
        passwd = node.etc / "passwd"
        times = passwd.stat()
        text = passwd.read_text().replace("/home/bob", "/srv/bobb")
        with passwd.open("r+") as file:
            file.write(text)
        os.utime(passwd, ns=(times.st_atime_ns, times.st_mtime_ns))
        wait_until(lambda: "/srv/bobb" in node.copied())
        # The directory is another one.
        node.etc.rename(node.base / "old")
        node.etc.mkdir()
        for name in FILES:
            (node.etc / name).write_bytes((node.base / "old" / name).read_bytes())
        node.add("cat", 1002)
        wait_until(lambda: "cat:x:1002" in node.copied())
        # `chage -E 0`, `userdel`.
        shadow = node.etc / "shadow"
        shadow.write_text(shadow.read_text().replace("bob:!:19000::::::", "bob:!:19000:::::0:"))
        wait_until(lambda: "bob:!:19000:::::0:" in node.copied("shadow"))
        passwd.write_text("".join(line for line in passwd.open() if not line.startswith("cat:")))
        wait_until(lambda: "cat" not in node.copied() + node.copied("shadow"))
    # Between renaming and making it, /etc was not there, which may have been seen.
    assert [line for line in log.read_text().splitlines() if "left out" in line] == []


def test_the_kernel_tells_of_a_change(node: Node) -> None:
    """By looking alone none is there before it has held for 150 ms; a busy machine takes longer at times."""
    with following(node) as (_, log):
        wait_until(lambda: "ann" in node.copied())
        quickest = 60.0
        for number in range(100):
            # Longer than a change has to wait that follows another.
            time.sleep(0.25)
            node.add(f"user{number}", 3000 + number)
            began = time.monotonic()
            wait_until(lambda name=f"user{number}:x": name in node.copied())
            quickest = min(quickest, time.monotonic() - began)
            if quickest < 0.13:
                break
        assert quickest < 0.13
    assert log.read_text() == ""


def test_a_fifo_is_told_of_once_and_when_it_is_over(node: Node) -> None:
    with following(node) as (_, log):
        wait_until(lambda: "ann" in node.copied())
        passwd = node.etc / "passwd"
        text = passwd.read_text()
        passwd.unlink()
        os.mkfifo(passwd)
        wait_until(lambda: "must be a regular file" in log.read_text())
        assert "ann" in node.copied()
        passwd.unlink()
        passwd.write_text(text + "bob:x:1001:1001::/:/bin/sh\n")
        wait_until(lambda: "bob" in node.copied())
        wait_until(lambda: "copied again" in log.read_text())
        # However often that is done, there is no more than a line every ten seconds.
        started = time.monotonic()
        for number in range(6):
            passwd.unlink()
            os.mkfifo(passwd)
            time.sleep(0.7)
            passwd.unlink()
            passwd.write_text(text + f"u{number}:x:1001:1001::/:/bin/sh\n")
            wait_until(lambda number=number: f"u{number}" in node.copied())
        assert log.read_text().count("not copied") <= 2 + (time.monotonic() - started) / 10


def test_a_copy_that_finds_no_room_is_made_later(node: Node) -> None:
    node.target.chmod(0o700)
    os.chown(node.target, 1005, 1005)
    with following(node) as (_, log):
        wait_until(lambda: "the directory must be root's" in log.read_text())
        os.chown(node.target, 0, 0)
        wait_until(lambda: "ann" in node.copied())


def test_the_daemon_has_no_rights_and_cannot_be_entered(node: Node) -> None:
    with following(node) as (process, _):
        wait_until(lambda: "ann" in node.copied())
        fields = dict(
            line.split(":\t", 1)
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
            if ":\t" in line
        )
        assert {int(fields[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}
        assert fields["NoNewPrivs"] == "1"
        assert fields["Groups"].split() == [str(SHADOW_GID)]
        # Root with some capabilities, as in the jail; it may look into a process that has no more.
        jailed = ("setpriv", "--bounding-set=-all,+kill,+chown", "--inh-caps=-all")
        with subprocess.Popen([*jailed, "sleep", "60"]) as other:
            try:
                wait_until(lambda: Path(f"/proc/{other.pid}/comm").read_text() == "sleep\n")
                look = {
                    pid: subprocess.run([*jailed, "ls", f"/proc/{pid}/root/"], capture_output=True).returncode
                    for pid in (other.pid, process.pid)
                }
            finally:
                other.kill()
        assert look[other.pid] == 0
        assert look[process.pid] != 0


@pytest.mark.parametrize("arguments", [["--nonsense"], ["once"]])
def test_wrong_usage_is_said(node: Node, arguments: list[str]) -> None:
    done = subprocess.run([node.program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "see jail-accounts --help" in done.stderr
