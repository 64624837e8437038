# SPDX-License-Identifier: Apache-2.0
"""Predicts what a volume's filesystem could not hold of a planned upgrade, without writing to it.

`jail upgrade --plan` prints it. filesystem_capabilities.py finds out more, by writing. A filesystem without
an extended attribute says so when its value is read (getxattr(2): EOPNOTSUPP, not ENODATA). Device nodes,
FIFOs and links show only when they are made; a kind that the volume's image has and that was not accepted as
lost can be held. The rest is reported as unknown; the upgrade tries it before it changes anything.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from cellblock.jail.merge.change_plan import Action, Plan
from cellblock.jail.tree.entry import shown
from cellblock.jail.tree.unsupported import KINDS, Loss, UnsupportedMetadata, kind_of
from cellblock.jail.volume.volume import Volume

PredictedLosses = tuple[tuple[Loss, ...], tuple[Loss, ...]]
"""What would be lost, and what cannot be known."""


def predict_losses(volume: Volume, plan: Plan) -> PredictedLosses:
    """The losses of `plan` that were not accepted yet, and what only the upgrade can tell; reads only."""
    unsupported = UnsupportedMetadata.of(volume.private)
    lost: dict[str, Loss] = {}
    unknown: dict[str, Loss] = {}
    answers: dict[bytes, bool] = {}
    kinds: dict[str, bool] = {}
    for action in plan.actions:
        counted = set()
        for name in _new_attributes(action):
            if name not in answers:
                answers[name] = _holds(volume.root, name)
            if not answers[name]:
                counted.add(kind_of(name))
        for what in counted:
            if not unsupported.accepts(what):
                _count(lost, what, action)
        kind = action.after.kind if action.after is not None and action.verb == "put" else ""
        if kind in KINDS and not unsupported.accepts(KINDS[kind]):
            if kind not in kinds:
                kinds[kind] = _has_some(volume.manifest, kind)
            if not kinds[kind]:
                _count(unknown, KINDS[kind], action)
    return tuple(lost.values()), tuple(unknown.values())


def _new_attributes(action: Action) -> Iterator[bytes]:
    """The names of attributes that the action would set and that the file has not."""
    if action.after is None or action.verb not in ("put", "mkdir", "metadata"):
        return
    there = {name for name, _ in action.before.xattrs} if action.before is not None else set()
    yield from (name for name, _ in action.after.xattrs if name not in there)


def _holds(root: Path, name: bytes) -> bool:
    try:
        os.getxattr(root, name)
    except OSError as error:
        return error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS)
    return True


def _has_some(manifest: Path, kind: str) -> bool:
    with manifest.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return text.find(f"\n{kind} ".encode()) >= 0


def _count(found: dict[str, Loss], what: str, action: Action) -> None:
    before = found.get(what)
    found[what] = Loss(
        what, (before.count if before else 0) + 1, before.example if before else shown(action.path)
    )
