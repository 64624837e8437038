# SPDX-License-Identifier: Apache-2.0
"""Carries out one action of an upgrade plan on a tree that users can change at the same time.

The file of the action is opened once (`handle`), checked against the plan, and then linked, compared and
changed through that descriptor. A name is used only to rename a file. After a rename the moved file is
checked: if users had exchanged it, it is moved back. A file lies in kept/ if and only if its action removed
it and it is the file that the plan meant, because a rollback restores what lies there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cellblock.jail.merge.action import Action
from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.entry import KINDS, Entry
from cellblock.jail.tree.file_handle import FileHandle, Stamp, UnreadableError
from cellblock.jail.tree.metadata import set_metadata
from cellblock.jail.tree.rename_exchange import exchange, move
from cellblock.jail.tree.unsupported import UnsupportedMetadata

MOVED = {
    errno.ENOENT: "its directory was removed meanwhile",
    errno.ENOTDIR: "users put something else there meanwhile",
    errno.EISDIR: "users put something else there meanwhile",
    errno.EEXIST: "users made it meanwhile",
    errno.ENOTEMPTY: "users made it meanwhile",
    errno.ELOOP: "users put a link there meanwhile",
    errno.EBUSY: "something is mounted there",
    errno.EXDEV: "it is on another filesystem, mounted here, or in an encrypted directory",
    errno.ENOKEY: "it is in an encrypted directory, whose key is not here",
    errno.ESTALE: "it was removed on another node meanwhile",
    errno.EMLINK: "users gave it as many names as a file can have",
    errno.ENAMETOOLONG: "its name is too long for the filesystem",
}
"""What users can make a step fail with, in words. Never an error: the upgrade would stop there each time."""
_SETUID = stat.S_ISUID | stat.S_ISGID
_CAPABILITY = b"security.capability"
THEIRS = b"theirs"
"""Folder of a transaction for files of users that could not be given back their place."""


class MovedError(Exception):
    """The tree is not what the plan expects at this path."""


class StepFolders(NamedTuple):
    """Descriptors of a transaction's folder, and of two that are in it. All are root's alone."""

    transaction: int
    new: int
    kept: int


@dataclass
class Step:
    """One action; each method is a verb and can be called again after it was interrupted anywhere."""

    access: TreeAccess
    folders: StepFolders
    number: int
    action: Action
    unsupported: UnsupportedMetadata

    @property
    def _name(self) -> bytes:
        return b"%d" % self.number

    def _inside(self, folder: int) -> os.stat_result | None:
        try:
            return os.stat(self._name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def mkdir(self) -> None:
        """Make a directory, in the place of a file that the plan expects there, or of nothing."""
        self._check_kept()
        if self._inside(self.folders.new) is None:
            return
        parent, name = self.access.at(self.action.path)
        handle = FileHandle.at(parent, name)
        if handle is not None:
            with handle:
                if handle.kind == "d":
                    os.rmdir(self._name, dir_fd=self.folders.new)  # users made one: theirs
                    return
                self._expect(handle.status)
                os.rename(name, self._name, src_dir_fd=parent, dst_dir_fd=self.folders.kept)
                self._check_kept()
        move(self.folders.new, self._name, parent, name)

    def put(self) -> None:
        """Put a new file there, in the place of the file that the plan expects, or of nothing."""
        waiting = FileHandle.at(self.folders.new, self._name)
        if waiting is None:
            return
        # Open until the end: were it removed, a file of users would be given its inode's number.
        with waiting:
            self._put(waiting)

    def _put(self, waiting: FileHandle) -> None:
        before = self.action.before
        try:
            if before is None or before.kind == "d":
                self._put_new(waiting)
            else:
                self._replace(waiting)
        except (MovedError, Blocked):
            self._drop(self.folders.new)
            raise
        except OSError as error:
            if error.errno in MOVED:
                self._drop(self.folders.new)
            raise

    def _drop(self, folder: int) -> None:
        """Remove the file of this action from `folder`; a file of users that is there is put aside."""
        with contextlib.suppress(FileNotFoundError):
            try:
                os.unlink(self._name, dir_fd=folder)
            except IsADirectoryError:
                self._put_aside(folder)

    def _put_new(self, waiting: FileHandle) -> None:
        status = self.access.status(self.action.path)
        if status is not None and self.action.before is not None and stat.S_ISDIR(status.st_mode):
            self.rmdir()  # what was in it was removed before; what users have in it keeps it there
            status = None
        if status is not None and not waiting.is_same(status):
            raise MovedError("users made it meanwhile")
        if status is None:
            parent, name = self.access.at(self.action.path)
            os.link(self._name, name, src_dir_fd=self.folders.new, dst_dir_fd=parent, follow_symlinks=False)
        os.unlink(self._name, dir_fd=self.folders.new)

    def _replace(self, waiting: FileHandle) -> None:
        kept = self._inside(self.folders.kept)
        if kept is not None and waiting.is_same(kept):
            os.unlink(self._name, dir_fd=self.folders.new)  # they were swapped before an interruption
            return
        parent, name = self.access.at(self.action.path)
        with self._keeping(), self._expected(parent, name) as handle:
            if kept is None:
                # By its descriptor: what has its name by now may be a link to a file of the host.
                handle.link(self.folders.kept, self._name)
            elif not handle.is_same(kept):
                raise MovedError("users replaced it meanwhile")
            self._expect_kept(handle)
            if exchange(self.folders.new, self._name, parent, name):
                self._check_exchanged(handle, waiting, parent, name)
                os.unlink(self._name, dir_fd=self.folders.new)
            else:
                os.rename(self._name, name, src_dir_fd=self.folders.new, dst_dir_fd=parent)

    @contextlib.contextmanager
    def _keeping(self) -> Iterator[None]:
        """Nothing stays in kept/ when the block took nothing away."""
        try:
            yield
        except (MovedError, Blocked):
            self._drop(self.folders.kept)
            raise
        except OSError as error:
            if error.errno in MOVED:
                self._drop(self.folders.kept)
            raise

    @contextlib.contextmanager
    def _expected(self, parent: int, name: bytes) -> Iterator[FileHandle]:
        handle = FileHandle.at(parent, name)
        if handle is None:
            raise MovedError("users removed it meanwhile")
        with handle:
            self._expect(handle.status)
            yield handle

    def _expect_kept(self, handle: FileHandle) -> None:
        """Check that the file in kept/ is the one that was examined, and unchanged."""
        kept = FileHandle.at(self.folders.kept, self._name)
        if kept is None:
            raise MovedError("users replaced it meanwhile")
        with kept:
            if not handle.is_same(kept.status):
                raise MovedError("users replaced it meanwhile")
            self._expect(kept.status)

    def _check_exchanged(self, handle: FileHandle, waiting: FileHandle, parent: int, name: bytes) -> None:
        """Check that the new file was exchanged with the examined one; otherwise move the other back."""
        out = self._inside(self.folders.new)
        is_same = out is not None and handle.is_same(out)
        if is_same and self._is_expected(handle.now()):
            return
        with contextlib.suppress(FileNotFoundError):
            exchange(self.folders.new, self._name, parent, name)
        back, where = self._inside(self.folders.new), ""
        if back is not None and not waiting.is_same(back):
            # They exchanged it once more. It is not ours to remove.
            where = self._put_aside(self.folders.new)
        raise MovedError(f"users {'changed' if is_same else 'replaced'} it meanwhile{where}")

    def _put_aside(self, folder: int) -> str:
        """Keep a file of users that has lost its place; returns where, in words."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(THEIRS, 0o700, dir_fd=self.folders.transaction)
        # Both folders may have one for this action.
        name = b"%s/%d.%s" % (THEIRS, self.number, b"new" if folder == self.folders.new else b"kept")
        os.rename(self._name, name, src_dir_fd=folder, dst_dir_fd=self.folders.transaction)
        return f"; one that they had there is {name.decode()} in this upgrade's record"

    def give_up(self) -> None:
        """Remove what was prepared for a `put` that is not carried out."""
        if self.action.verb == "put":
            self._drop(self.folders.kept)
            self._drop(self.folders.new)

    def metadata(self) -> None:
        """Give the file other owner, mode, attributes and time."""
        handle = self.access.open_handle(self.action.path)
        if handle is None:
            raise MovedError("users removed it meanwhile")
        with handle:
            try:
                self._set_metadata(handle)
            except UnreadableError as error:
                raise MovedError(str(error)) from None

    def _set_metadata(self, handle: FileHandle) -> None:
        before, after, stamp, status = self.action.before, self.action.after, self.action.stamp, handle.status
        assert after is not None
        if stamp is None or before is None or status.st_ino != stamp.inode or handle.kind != after.kind:
            raise MovedError("users replaced it meanwhile")
        # Of both sides: it may have been done in part before an interruption.
        owner, owners = (status.st_uid, status.st_gid), [(one.uid, one.gid) for one in (before, after)]
        modes = (before.mode, after.mode)
        if owner not in owners or (owners[0] == owners[1] and stat.S_IMODE(status.st_mode) not in modes):
            raise MovedError("users changed it meanwhile")
        if after.kind == "d":
            # Its time is users' business; setting owner and mode does not touch it.
            after = after._replace(mtime_ns=status.st_mtime_ns)
        elif status.st_size != stamp.size or status.st_mtime_ns not in (stamp.mtime_ns, after.mtime_ns):
            raise MovedError("users changed it meanwhile")
        elif gives_rights(handle, after) and handle.digest() != after.digest:
            # An inode's number is given again, and a time can be set: only content says what it is.
            raise MovedError("users changed it meanwhile")
        had, has = dict(before.xattrs), dict(after.xattrs)
        for name in handle.xattr_names():
            if name in had and name not in has:
                with contextlib.suppress(OSError):
                    os.removexattr(handle.magic, name)
        try:
            set_metadata(handle, after, self.unsupported)
        except OSError as error:
            room = os.fstatvfs(self.folders.new)
            if error.errno != errno.ENOSPC or not room.f_bavail:
                raise
            raise MovedError("the image's attributes do not fit beside the users'") from None

    def remove(self) -> None:
        """Take the file away that the plan expects there."""
        self._check_kept()
        parent, name = self.access.at(self.action.path)
        handle = FileHandle.at(parent, name)
        taken = self._inside(self.folders.kept) is not None
        if handle is None:
            if not taken:
                # Said, because the record has no old file then, and that must not look like damage.
                raise MovedError("users removed it meanwhile")
            return
        with handle:
            if taken:
                raise MovedError("users made it anew meanwhile")
            self._expect(handle.status)
            os.rename(name, self._name, src_dir_fd=parent, dst_dir_fd=self.folders.kept)
        self._check_kept()

    def rmdir(self) -> None:
        """Remove a directory that nobody has anything in."""
        status = self.access.status(self.action.path)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return
        self.access.forget()
        parent, name = self.access.at(self.action.path)
        try:
            os.rmdir(name, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise MovedError("users have files in it") from None
            raise

    def _expect(self, status: os.stat_result) -> None:
        if not self._is_expected(status):
            raise MovedError("users changed it meanwhile")

    def _is_expected(self, status: os.stat_result) -> bool:
        stamp, before = self.action.stamp, self.action.before
        if stamp is None or before is None:
            return False  # there was none
        now = Stamp.of(status)
        # Not the change time: giving the file a second name in kept/ changes it, as does replacing another
        # of its names.
        return (now.inode, now.size, now.mtime_ns) == (stamp.inode, stamp.size, stamp.mtime_ns) and (
            KINDS.get(stat.S_IFMT(status.st_mode)),
            stat.S_IMODE(status.st_mode),
            status.st_uid,
            status.st_gid,
        ) == (before.kind, before.mode, before.uid, before.gid)

    def _check_kept(self) -> None:
        """After a rename to kept/: was it the file that was meant? If not, give it back its place."""
        kept = FileHandle.at(self.folders.kept, self._name)
        if kept is None:
            return
        with kept:
            if self._is_expected(kept.status):
                return
        where = ""
        try:
            parent, name = self.access.at(self.action.path)
            move(self.folders.kept, self._name, parent, name)
        except (OSError, Blocked) as error:
            if isinstance(error, OSError) and error.errno not in MOVED:
                raise
            where = self._put_aside(self.folders.kept)  # its place was taken meanwhile
        raise MovedError(f"users changed it meanwhile{where}")


def gives_rights(handle: FileHandle, after: Entry) -> bool:
    """Whether the metadata of `after` gives a file rights that it has not: set-user-ID or capabilities."""
    status = handle.status
    if after.kind != "f" or not (after.mode & _SETUID or _CAPABILITY in dict(after.xattrs)):
        return False
    has = (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, handle.xattrs())
    return has != (after.mode, after.uid, after.gid, after.xattrs)
