# SPDX-License-Identifier: Apache-2.0
"""Defines a jail volume on disk: its folders and records, who may write them, and what a crash leaves.

    VOLUME/
      root/                     the tree that jobs see; there is a whole one or none
      .cellblock/               root's alone, mode 0700
        lock, writer            held while someone writes; who and since when (see `writer_lock`)
        state.json              what root/ was made from
        manifest                what root/ was when it was written (see `tree.manifest`)
        controls                the image's databases of packages and accounts (see `tree.databases`)
        layers/DIGEST           the entries of a layer that was read (see `source.listings`)
        transaction/            an upgrade being carried out (see `apply.transaction`)
        history/NUMBER/         upgrades of the past, with the files that they replaced
        staging-PID-RANDOM/     a tree being written: root/, state.json, manifest, mounted-image
        backup/                 the name of its snapshots, the list of the tree at the last (see `backup`)
        restore/                a restored tree being put in place (see `backup.restore_commit`)
        replaced-TIME/          what a restore replaced; nothing uses it any more

A volume becomes assembled when staging's root/ is renamed to VOLUME/root. state.json and manifest are put
in place before that: as long as there is no root/ they mean nothing and are replaced.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cellblock.errors import CellblockError, NewerFormatError
from cellblock.files.durable import put, sync_directory
from cellblock.jail.source.identity import SourceIdentity
from cellblock.jail.tree import databases
from cellblock.jail.tree.manifest import DAMAGED_HINT
from cellblock.jail.tree.removal import remove_tree
from cellblock.jail.volume.writer_lock import WriterLock, myself

STATE_VERSION = 1
_ADOPTED_VERSION = 2
"""Of the record of an adopted tree: who knows only version 1 would take what the site made for an image's."""
RESTORE = "restore"
"""In `.cellblock`, from the moment that a restore is decided until it is carried out."""


@dataclass(frozen=True)
class VolumeState:
    """The record of a volume's root/: its source, its time, and its size.

    `layers` are the digests of the image's layers, the lowest first; none where they are not known.
    """

    source: SourceIdentity
    manifest_sha256: str
    entries: int
    bytes: int
    assembled_at: str
    layers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Volume:
    """The paths of a volume. Nothing is created or checked by making one of these."""

    path: Path

    @property
    def root(self) -> Path:
        """The tree that jobs see."""
        return self.path / "root"

    @property
    def private(self) -> Path:
        """The folder of Cellblock's records, `.cellblock`."""
        return self.path / ".cellblock"

    @property
    def manifest(self) -> Path:
        """The manifest of the tree as it was written."""
        return self.private / "manifest"

    @property
    def layers(self) -> Path:
        """The folder of layer listings (see `source.listings`)."""
        return self.private / "layers"

    def is_assembled(self) -> bool:
        """Whether there is a root; an empty directory is none (a fresh mount point)."""
        try:
            if self.root.is_symlink():  # what it leads to may be anything
                raise NotADirectoryError
            with os.scandir(self.root) as listing:
                return next(listing, None) is not None
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            file = self.root if self.path.is_dir() else self.path
            raise CellblockError(
                f"{file} is no directory",
                hint="name the directory of a volume; `jail assemble SOURCE VOLUME` makes it",
            ) from None

    def state(self) -> VolumeState | None:
        """Read what root/ was made from; None when there is no root. Raises CellblockError."""
        for folder in (self.path, self.private):
            ask_anew(folder)
        if (self.private / RESTORE).exists():
            raise CellblockError(
                f"a restore of {self.path} was interrupted: tree and records may not belong together",
                hint="run the same restore again: it finishes that",
            )
        if not self.is_assembled():
            return None
        path = self.private / "state.json"
        try:
            return _decode(path)
        except FileNotFoundError:
            raise CellblockError(
                f"{self.root} exists, but Cellblock has no record of assembling it; nothing was changed",
                hint="is that the right volume? `jail restore VOLUME REPO` brings one back with its records; "
                f"a tree that nobody needs can be moved away: mv {self.root} {self.root}.old",
            ) from None
        except PermissionError:
            raise CellblockError(f"cannot read {path}: it is root's alone", hint="run this as root") from None
        except NotADirectoryError:
            raise CellblockError(
                f"{self.private} is no directory, and was Cellblock's; nothing was changed", hint=DAMAGED_HINT
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CellblockError(
                f"{path}: damaged: {error}; nothing was changed", hint=DAMAGED_HINT
            ) from None

    def read_state(self, folder: Path) -> VolumeState:
        """Read what `write_state` wrote into `folder`. Raises OSError and ValueError."""
        return _decode(folder / "state.json")

    def write_state(self, state: VolumeState, folder: Path) -> None:
        """Write `state` into `folder`, from where `publish` takes it."""
        version = _ADOPTED_VERSION if state.source.is_adopted else STATE_VERSION
        text = json.dumps({"version": version, **asdict(state)}, indent=2)
        put(folder / "state.json", text + "\n")

    def prepare(self) -> None:
        """Make the volume's directory and `.cellblock`, owned by root and closed to other writers.

        Raises CellblockError for a directory that is in use and that others may write: a user could
        swap the root under running jobs. Likewise for one inside another jail, which that one's users write.
        """
        for above in self.path.resolve().parents:
            outer = above.parent / ".cellblock"
            if above.name in ("root", ".cellblock") and (outer / "state.json").exists():
                raise CellblockError(
                    f"{self.path} lies inside another jail, {above.parent}; nothing was written",
                    hint="put each volume into a directory of its own, beside the other",
                )
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o755)
        except (FileExistsError, NotADirectoryError) as error:
            raise CellblockError(
                f"{error.filename} is no directory; nothing was written",
                hint="name a directory for the volume",
            ) from None
        status = self.path.stat()
        if status.st_uid != 0 or status.st_gid != 0 or stat.S_IMODE(status.st_mode) != 0o755:
            names = {entry.name for entry in self.path.iterdir()} - {"lost+found", ".cellblock"}
            if names and (status.st_uid != 0 or status.st_mode & 0o022):
                raise CellblockError(
                    f"{self.path} is not root's alone to write (owner {status.st_uid}, mode "
                    f"{stat.S_IMODE(status.st_mode):o}) and not empty",
                    hint=f"chown root:root {self.path} && chmod 755 {self.path}",
                )
            _make_roots(self.path, 0o755)
        self.private.mkdir(exist_ok=True, mode=0o700)
        _make_roots(self.private, 0o700)

    @contextmanager
    def lock(
        self, what: str, notice: Callable[[str], None] = lambda text: None
    ) -> Iterator[Callable[[], None]]:
        """Be the only writer of the volume, also among hosts that share it. `prepare` comes first.

        Yields a function that raises LostLockError when another host took over. See `writer_lock`.
        """
        with WriterLock(self.private, self.path, myself(what)).held(notice) as check:
            yield check

    def leftovers(self) -> list[Path]:
        """Staging folders of writers that were killed, and of shards. Only the holder of the lock may ask."""
        return sorted((*self.private.glob("staging-*"), *self.private.glob("shards-*")))

    def lasting(self) -> list[Path]:
        """List the files of `.cellblock` that belong to the jail, not to running or killed writers."""
        passing = ("lock", "writer", "staging-", "shards-", "replaced-", RESTORE, "ready")
        return sorted(one for one in self.private.iterdir() if not one.name.startswith(passing))

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Make a folder on the volume; it is removed at the end with everything in it."""
        folder = self.private / f"staging-{os.getpid()}-{secrets.token_hex(4)}"
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            if folder.exists():  # not renamed meanwhile, to be kept
                remove_tree(folder)

    def publish(self, staging: Path, check: Callable[[], None]) -> None:
        """Make what is in `staging` the volume's tree, all of it or nothing, safe from power loss.

        `check` raises when another writer took over while all was flushed.
        """
        (staging / "controls").unlink(missing_ok=True)  # of a run that was interrupted here
        databases.save(staging / "controls", databases.of_root(staging / "root"))
        sync_filesystem(self.path)
        check()
        self.publish_records(staging)
        try:
            (staging / "root").rename(self.root)
        except OSError as error:
            raise CellblockError(
                f"cannot put the finished tree at {self.root}: {error.strerror}; nothing was changed",
                hint=f"{self.root} must be absent or an empty directory of the volume itself, no mount point",
            ) from error
        sync_directory(self.path)

    def publish_records(self, staging: Path, check: Callable[[], None] | None = None) -> None:
        """Put the flushed records of `staging` in place.

        Where there is a root already, that makes it a volume: state.json comes last then, when the others are
        on disk, after one more `check`.
        """
        for name in ("manifest", "controls"):
            (staging / name).replace(self.private / name)
        if check is not None:
            sync_directory(self.private)
            check()
        (staging / "state.json").replace(self.private / "state.json")
        sync_directory(self.private)

    def take(self, tree: Path, check: Callable[[], None]) -> None:
        """Make the directory `tree` the volume's root by one rename, safe from power loss."""
        check()
        try:
            tree.rename(self.root)
        except OSError as error:
            raise CellblockError(
                f"cannot move {tree} to {self.root} by one rename: {error.strerror}; nothing was changed",
                hint=f"move it with a program that copies, mv {tree} {self.root}, and adopt {self.path}",
            ) from error
        sync_directory(self.path)
        sync_directory(tree.parent)


def sync_filesystem(path: Path) -> None:
    """syncfs(2): everything written to the filesystem of `path` so far is on disk, or OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)


def ask_anew(folder: Path) -> None:
    """Make the next lookup in `folder` see files that other hosts made (NFS caches directories).

    NFS remembers that there is no file of a name, for 30 s by default (acdirmin, nfs(5)), and asks the server
    again when the folder is opened.
    """
    with suppress(OSError):  # what is wrong with the folder is said by who looks into it
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def _make_roots(folder: Path, mode: int) -> None:
    """Give a folder to root alone. NFS that squashes root, and some FUSE, give nothing to root.

    What is lost with that is then listed, and refused or allowed, as for every other file. Raises
    CellblockError when others could write the folder afterwards.
    """
    try:
        os.chown(folder, 0, 0)
        folder.chmod(mode)
    except PermissionError as error:
        if stat.S_IMODE(folder.stat().st_mode) & 0o022:
            raise CellblockError(
                f"{folder} cannot be made root's alone to write: {error.strerror}; nothing was changed",
                hint="an NFS server that squashes root does that: export with no_root_squash to the nodes",
            ) from None


def _decode(path: Path) -> VolumeState:
    fields = json.loads(path.read_text(encoding="utf-8"))
    version = fields.pop("version")
    if version not in (STATE_VERSION, _ADOPTED_VERSION):
        raise NewerFormatError(path, version, _ADOPTED_VERSION)
    fields["source"] = SourceIdentity(**fields["source"])
    fields["layers"] = tuple(fields.get("layers", ()))
    return VolumeState(**fields)
