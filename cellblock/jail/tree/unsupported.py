# SPDX-License-Identifier: Apache-2.0
"""Records which kinds of metadata a volume's filesystem cannot hold and its administrator accepted to lose.

`.cellblock/losses.json` lists them by the names of `LOSSES`. An assembly or upgrade with `--allow-lossy`
writes it. From then on `verify` and `diff` do not report these kinds, and upgrades and repairs do not try to
set them.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cellblock.errors import CellblockError
from cellblock.files import durable
from cellblock.jail.tree.entry import Entry, shown
from cellblock.jail.tree.tree_check import Difference

LOSSES = (
    "owners",
    "modes",
    "times",
    "file capabilities",
    "ACLs",
    "extended attributes",
    "device nodes",
    "fifos",
    "symbolic links",
    "hard links",
)
"""What a filesystem may be unable to hold, in the order of the C core's enum image_loss."""


@dataclass(frozen=True)
class Loss:
    """What a filesystem could not hold (one of `LOSSES`), of how many files, and the path of one of them."""

    what: str
    count: int
    example: str


_MASKS = {
    "owners": Difference.OWNER,
    "modes": Difference.MODE,
    "times": Difference.TIME,
    "hard links": Difference.LINK,
}
KINDS = {"c": "device nodes", "b": "device nodes", "p": "fifos", "l": "symbolic links"}
"""The name in `LOSSES` of each kind of entry that a filesystem may be unable to hold."""
NAME = "losses.json"
"""In `.cellblock`, and in a transaction's `next` where it accepts more."""
_CANNOT = (errno.EPERM, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS, errno.E2BIG)


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        if all(isinstance(one["what"], str) for one in found):
            return found
        raise ValueError("a name is no text")
    except FileNotFoundError:
        return []
    except (ValueError, TypeError, KeyError) as error:
        raise CellblockError(
            f"{path}: damaged: {error}", hint="restore it from a backup, or remove it"
        ) from None


def write(path: Path, losses: Iterable[Loss]) -> None:
    """Write the losses to the file `path`."""
    durable.write(path, json.dumps([asdict(one) for one in losses], indent=2) + "\n")


def joined(paths: Iterable[Path]) -> list[Loss]:
    """Add up the losses of several shards, from the files that `write` wrote. Raises CellblockError."""
    found: dict[str, Loss] = {}
    for one in (Loss(**record) for path in paths for record in _read(path)):
        before = found.get(one.what)
        found[one.what] = Loss(one.what, before.count + one.count, before.example) if before else one
    return list(found.values())


class UnsupportedMetadata:
    """The kinds of metadata that were accepted as lost on a volume, for comparing and for writing files."""

    def __init__(self, what: Collection[str] = ()) -> None:
        self._what = frozenset(what)
        self._mask = Difference(0)
        for name in self._what & _MASKS.keys():
            self._mask |= _MASKS[name]

    @staticmethod
    def of(private: Path) -> UnsupportedMetadata:
        """Read the record of the volume whose `.cellblock` is `private`. Raises CellblockError."""
        return UnsupportedMetadata([one["what"] for one in _read(private / NAME)])

    def attributes(self, entry: Entry) -> Entry:
        """Return the entry with those extended attributes that the volume can hold."""
        if not self._what or not entry.xattrs:
            return entry
        return entry._replace(xattrs=tuple(one for one in entry.xattrs if kind_of(one[0]) not in self._what))

    def differs(self, difference: Difference) -> Difference:
        """Return the part of a difference that was not accepted."""
        return difference & ~self._mask

    def accepts(self, what: str) -> bool:
        """Whether this kind, a name of `LOSSES`, is accepted as lost."""
        return what in self._what

    def has_no(self, kind: str) -> bool:
        """Whether entries of this kind may be missing."""
        return KINDS.get(kind) in self._what

    @contextmanager
    def accepting(self, what: str, path: bytes, name: str = "") -> Iterator[None]:
        """The block sets or makes `what` of `path`. It may fail if that kind is accepted as lost.

        `name` is what it is to people.
        """
        try:
            yield
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            if what not in self._what:
                self._refuse(what, path, name or what, error)

    def _refuse(self, what: str, path: bytes, name: str, error: OSError) -> None:
        """Raise the error of metadata that was not accepted as lost."""
        if name != what:
            raise _refused(path, name, error) from None
        raise error

    def accepting_kind(self, entry: Entry) -> AbstractContextManager[None]:
        """The block makes an entry of this kind."""
        return self.accepting(KINDS.get(entry.kind, ""), entry.path)

    def lacks(self, entry: Entry | None, path: bytes) -> bool:
        """Whether the entry could not be made at `path`."""
        return entry is not None and self._may_lack(KINDS.get(entry.kind)) and not os.path.lexists(path)

    def _may_lack(self, what: str | None) -> bool:
        return what in self._what


class MetadataTrial(UnsupportedMetadata):
    """Tries new metadata on staged files, to find out what the volume cannot hold before the tree is changed.

    A kind that it cannot hold is an error; with `allow` it is recorded, and accepted as lost from then on.
    """

    def __init__(self, private: Path, *, allow: bool) -> None:
        self._before = _read(private / NAME)
        super().__init__([one["what"] for one in self._before])
        self._allow = allow
        self._found: dict[str, tuple[int, str]] = {}
        self._last = ("", b"")

    def _refuse(self, what: str, path: bytes, name: str, error: OSError) -> None:
        if not what:  # a file or a directory
            raise error
        if not self._allow:
            raise _refused(path, name, error) from None
        if (what, path) != self._last:  # of a file's attributes several may fail
            count, example = self._found.get(what, (0, shown(path)))
            self._found[what] = (count + 1, example)
        self._last = (what, path)

    def _may_lack(self, what: str | None) -> bool:
        return super()._may_lack(what) or what in self._found

    def found(self) -> list[Loss]:
        """Return the losses that were found by this trial."""
        return [Loss(what, *one) for what, one in self._found.items()]

    def save(self, folder: Path) -> None:
        """Write the accepted losses into `folder`, if there are more than before."""
        found = [asdict(one) for one in self.found()]
        if found:
            durable.write(folder / NAME, json.dumps([*self._before, *found], indent=2) + "\n")


def _refused(path: bytes, name: str, error: OSError) -> CellblockError:
    return CellblockError(
        f"the volume's filesystem cannot hold the {name} of {shown(path)}: {error.strerror}",
        hint="use a filesystem that can (ext4, xfs, btrfs; NFS from 4.2 on); or accept it: upgrade, apply "
        "and restore have --allow-lossy",
    )


def kind_of(attribute: bytes) -> str:
    """Return which of `LOSSES` an extended attribute belongs to, by its name."""
    if attribute == b"security.capability":
        return "file capabilities"
    return "ACLs" if attribute.startswith(b"system.posix_acl_") else "extended attributes"
