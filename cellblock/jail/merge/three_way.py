# SPDX-License-Identifier: Apache-2.0
"""Merges one file three ways: the old image's, the new image's, and the tree's.

What users did not change follows the image; what they changed stays. Content and each part of the metadata
are merged separately, so a file whose mode somebody changed still gets the new content.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeVar

from cellblock.jail.tree.entry import Entry

T = TypeVar("T")

Verdict = Literal["same", "add", "update", "metadata", "remove", "kept", "conflict"]


class Outcome(NamedTuple):
    """The result of a merge. `result` is the entry that the tree gets; None: no file.

    `beside` is the image's file when it could not take its place; `why` a half-sentence for people.
    """

    verdict: Verdict
    result: Entry | None
    beside: Entry | None = None
    why: str = ""


def content(entry: Entry | None) -> tuple[object, ...] | None:
    """Return the fields of an entry that stand for its content; None for no entry."""
    if entry is None:
        return None
    return (entry.kind, entry.target, entry.device, entry.digest)


def merge(base: Entry | None, new: Entry | None, tree: Entry | None) -> Outcome:
    """Merge one path's entries; None says it is not there. Hard links come as files with a digest."""
    old, ours, theirs = content(base), content(new), content(tree)
    if ours == theirs:
        return _merged(base, new, tree, tree, "metadata")
    if ours == old:
        return Outcome("same", tree)
    if theirs == old:
        if new is None:
            return Outcome("remove", None)
        return _merged(base, new, tree, new, "add" if tree is None else "update")
    if new is None:
        return Outcome("kept", tree, None, "users changed it, and the image no longer has it")
    if tree is None:
        return Outcome("kept", None, None, "users removed it, and the image changed it")
    if base is None:
        return Outcome("conflict", tree, new, "the image has it now, and users have another")
    return Outcome("conflict", tree, new, "users and the image both changed it")


def _merged(
    base: Entry | None, new: Entry | None, tree: Entry | None, chosen: Entry | None, verdict: Verdict
) -> Outcome:
    """`chosen`, the side whose content it is, with the metadata merged."""
    if chosen is None or new is None:
        return Outcome("same", tree)
    if tree is None:
        return Outcome(verdict, new)
    if base is None:
        # Users made the same: the owner and mode that they chose stay.
        return Outcome("same", tree)
    same_kind = base.kind == new.kind == tree.kind
    if not same_kind:
        result = chosen
    else:
        result = chosen._replace(
            mode=_field(base.mode, new.mode, tree.mode),
            uid=_field(base.uid, new.uid, tree.uid),
            gid=_field(base.gid, new.gid, tree.gid),
            xattrs=_field(base.xattrs, new.xattrs, tree.xattrs),
            mtime_ns=new.mtime_ns if chosen is new else _field(base.mtime_ns, new.mtime_ns, tree.mtime_ns),
        )
    if result == tree:
        return Outcome("same", tree)
    return Outcome(verdict, result)


def _field(base: T, new: T, tree: T) -> T:
    return new if tree == base else tree
