# SPDX-License-Identifier: Apache-2.0
"""Defines the action of an upgrade plan: the change of one path, with what is there before and after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cellblock.jail.tree.access import Stamp
from cellblock.jail.tree.entry import Entry

Verb = Literal["mkdir", "put", "metadata", "remove", "rmdir"]


@dataclass(frozen=True, slots=True)
class Action:
    """One change of one path. `before` is what the tree held when this was planned, `after` what it will.

    `stamp` is that of the file at `before`. `note` says why where it is not obvious; `beside` marks the
    image's version of a file that users keep theirs of. `link` is the path of an earlier action whose new
    file this is another name of (a hard link).
    """

    verb: Verb
    path: bytes
    before: Entry | None
    after: Entry | None
    stamp: Stamp | None = None
    note: str = ""
    beside: bool = False
    link: bytes = b""

    @property
    def summary(self) -> str:
        """Return the action's word in a report: add, update, remove, metadata, beside."""
        if self.beside:
            return "beside"
        if self.verb == "metadata":
            return "metadata"
        if self.after is None:
            return "remove"
        return "add" if self.before is None else "update"

    @property
    def new_content(self) -> str:
        """The digest of the content that this needs; empty where it needs none."""
        if self.verb != "put" or self.after is None or self.after.kind != "f" or self.link:
            return ""
        return self.after.digest
