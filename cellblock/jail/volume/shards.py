# SPDX-License-Identifier: Apache-2.0
"""Lets several writers fill one volume together: each writes one shard, and the last publishes the volume.

    .cellblock/shards-SOURCE-of-N/
      root/           the tree, which all write into
      part-I          the manifest's lines of shard I: it has finished
      lost-I          what the volume could not hold of shard I
      lock-I          locked while shard I is being written; says by whom

The path of a file's directory decides which shard the file belongs to, so writers need not talk to each
other.
"""

from __future__ import annotations

import errno
import fcntl
import heapq
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cellblock.errors import UsageError
from cellblock.files import durable
from cellblock.jail.source.image_core import Summary
from cellblock.jail.tree import manifest, unsupported
from cellblock.jail.tree.entry import Entry, order
from cellblock.jail.tree.unsupported import Loss
from cellblock.jail.volume.volume import Volume, ask_anew, sync_filesystem
from cellblock.jail.volume.writer_lock import BusyError, LostLockError

_PATIENCE_S = 600.0
"""Longer than joining the shards of the largest jail takes."""


@dataclass(frozen=True)
class Shard:
    """Part `index` (from 0) of `of`."""

    index: int = 0
    of: int = 1

    @staticmethod
    def parse(text: str) -> Shard:
        """`I/N`, I from 0 as a Kubernetes Indexed Job counts. Raises UsageError."""
        found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
        if not found or int(found[1]) >= int(found[2]):
            raise UsageError(
                f"'{text}' is no shard", hint="write I/N with I from 0 to N-1, for example --shard 0/4"
            )
        return Shard(int(found[1]), int(found[2]))


@contextmanager
def patient_lock(volume: Volume, what: str) -> Iterator[Callable[[], None]]:
    """`Volume.lock`; waits for the short times that other shards hold it. Raises CellblockError."""
    until = time.monotonic() + _PATIENCE_S
    with ExitStack() as held:
        while True:
            try:
                check = held.enter_context(volume.lock(what))
                break
            except BusyError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
        yield check


def _blame(check: Callable[[], None], error: Exception) -> None:
    """Raise LostLockError if that is why there was an error: whoever took over removes what we work in."""
    try:
        check()
    except LostLockError as lost:
        raise lost from error
    except OSError:
        return  # nothing is known; the error at hand says more


class ShardFolder:
    """The folder that the shards of one source share."""

    def __init__(self, private: Path, source: str, of: int) -> None:
        self.path = private / f"shards-{source[-16:]}-of-{of}"
        self._of = of

    @contextmanager
    def only_one(self, shard: Shard) -> Iterator[Callable[[], None]]:
        """Be the only one that writes this shard, on any host. Raises BusyError.

        Yields a function that raises LostLockError when it is another's by now. A server takes the lock of a
        host that was cut off or asleep without a word, so who has it writes a token of its own into the file.
        """
        path, token = self.path / f"lock-{shard.index}", secrets.token_bytes(16)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

        def check() -> None:
            try:
                found = path.read_bytes()  # opened anew: NFS asks the server then
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ESTALE):
                    raise
                found = b""  # the shards are joined, and the folder is gone
            if found != token:
                raise LostLockError(
                    f"shard {shard.index}/{shard.of} was taken over by another process: this host had not "
                    "written to it for too long",
                    hint="run the same command again: it finishes what is left",
                )

        try:
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                raise BusyError(
                    f"shard {shard.index}/{shard.of} is being written by another process",
                    hint="give each writer its own --shard",
                ) from None
            os.pwrite(descriptor, token, 0)
            os.fsync(descriptor)
            try:
                yield check
            except LostLockError:
                raise
            except Exception as error:
                _blame(check, error)
                raise
        finally:
            os.close(descriptor)

    @contextmanager
    def finished(self, shard: Shard) -> Iterator[Path]:
        """The block writes the shard's lines to the path that it gets; then they count."""
        new = self.path / f"new-{shard.index}"
        new.unlink(missing_ok=True)
        yield new
        durable.flush(new)
        # The name says that all files of this shard are on the disk: nobody writes them again.
        sync_filesystem(self.path)
        new.replace(self.path / f"part-{shard.index}")
        durable.sync_directory(self.path)

    def lost(self, shard: Shard, found: list[Loss]) -> None:
        """Note what the volume could not hold of a shard."""
        unsupported.write(self.path / f"lost-{shard.index}", found)

    def all_lost(self) -> list[Loss]:
        """Return what the volume could not hold of all shards."""
        return unsupported.joined(self.path / f"lost-{number}" for number in range(self._of))

    def waiting(self) -> tuple[int, ...]:
        """The shards that have not finished."""
        ask_anew(self.path)
        return tuple(n for n in range(self._of) if not (self.path / f"part-{n}").exists())

    def join(self, path: Path) -> Summary:
        """Write the manifest from the shards' lines."""
        entries = size = 0

        def counted() -> Iterator[Entry]:
            nonlocal entries, size
            parts = (self._lines(number) for number in range(self._of))
            for entry in heapq.merge(*parts, key=lambda entry: order(entry.path)):
                entries += 1
                size += entry.size if entry.kind == "f" else 0
                yield entry

        digest = manifest.write(path, counted())
        return Summary(entries, size, digest)

    def _lines(self, number: int) -> Iterator[Entry]:
        with (self.path / f"part-{number}").open("rb") as file:
            for line in file:
                yield manifest.parse(line)
