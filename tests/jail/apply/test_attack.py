# SPDX-License-Identifier: Apache-2.0
"""Programs in the jail exchange files, directories and databases without end while it is upgraded.

No upgrade and no rollback ends in an error, no file of the host beside the volume is touched, and nothing of
it comes into the jail. CI does some rounds; CELLBLOCK_ATTACKS=60 in the environment does that many.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from exchanging import EVIL, Outside, copy, make_evil, prepared
from test_exchanged_files import TARGETS
from upgraded_jail import Jail

from cellblock.events import Events
from cellblock.jail.backup import listing
from cellblock.jail.changes import changes, export
from cellblock.jail.rollback import rollback
from cellblock.jail.tree import rename_exchange
from cellblock.jail.upgrade import upgrade
from cellblock.jail.verify import verify

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root")

ROUNDS = int(os.environ.get("CELLBLOCK_ATTACKS", "5"))
ATTACKERS = 3

# Exchanges targets for what lies in home/evil, each for a moment; writes to, links and changes what it gets.
ATTACKER = """
import ctypes, os, random, sys, time
libc = ctypes.CDLL(None, use_errno=True)
root, number, *targets = sys.argv[1:]
os.chroot(root)  # as in the jail: what they follow themselves leads nowhere
os.chdir("/")
chance = random.Random(int(number))
evil = [f"home/evil/{number}/{name}" for name in sorted(os.listdir(f"home/evil/{number}"))]
count = 0
while True:
    target, other = chance.choice(targets), chance.choice(evil)
    swap = lambda: libc.renameat2(-100, target.encode(), -100, other.encode(), 2)
    swap()
    time.sleep(chance.choice((0, 0, 0.0001, 0.001, 0.01)))
    try:
        if chance.random() < 0.02 and os.path.isfile(other) and not os.path.islink(other):
            action = chance.randrange(5)
            if action == 0:
                os.chmod(other, chance.choice((0o600, 0o644, 0o4755)), follow_symlinks=True)
            elif action == 1:
                os.setxattr(other, "user.of_users", b"x" * chance.randrange(200))
            elif action == 2:
                os.link(other, f"home/evil/link-{number}-{count}", follow_symlinks=False)
            elif action == 3:
                os.utime(other, ns=(10**18, 10**18))
            else:
                file = os.open(other, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
                os.write(file, b"more")
                os.close(file)
    except OSError:
        pass
    swap()
    count += 1
"""


@contextmanager
def attacked(root: Path) -> Iterator[None]:
    """While the block lasts, programs exchange the targets."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", ATTACKER, str(root), str(number), *TARGETS],
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(ATTACKERS)
    ]
    try:
        yield
        assert [one.poll() for one in running] == [None] * ATTACKERS, "they are still at it"
    finally:
        for one in running:
            one.kill()
            one.communicate()


@pytest.mark.parametrize("can_exchange", [True, False], ids=["local", "as on NFS"])
def test_an_attack_ends_no_upgrade_and_reaches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr(rename_exchange, "_rename", lambda *arguments: False)
    jail, outside = prepared(tmp_path), Outside(tmp_path / "outside")
    _prepare_evil(jail, outside)
    left = done = 0
    for number in range(ROUNDS):
        # A new one each time: of what they change for good an upgrade has nothing to do the next time.
        volume = copy(jail, tmp_path / "attacked")
        with attacked(volume / "root"):
            for _ in range(2):
                for result in (
                    upgrade(str(tmp_path / "new"), volume, jail.events),
                    rollback(volume, jail.events),
                ):
                    left += len(result.skipped) + len(result.plan.findings)
                    done += len(result.plan.actions) - len(result.skipped)
            if number % 5 == 0:
                _read(volume, tmp_path / f"{number}.tar", jail.events)
        outside.check(volume)
    assert left, "nothing was exchanged at the right moment: no attack"
    assert done > 10 * ROUNDS


def _prepare_evil(jail: Jail, outside: Outside) -> None:
    for number in range(ATTACKERS):
        folder = jail.root / f"home/evil/{number}"
        folder.mkdir(parents=True)
        for kind in EVIL:
            make_evil(kind, folder / kind.replace(" ", "-"), outside, jail.root)


def _read(volume: Path, target: Path, events: Events) -> None:
    verify(volume, events, content=True)
    list(changes(volume))
    export(volume, target)
    listing.write(target.with_suffix(".list"), listing.read_tree(os.fsencode(volume / "root")))
    verify(volume, events, content=True, repair=True)
