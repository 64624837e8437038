# SPDX-License-Identifier: Apache-2.0
"""Finds directories that the new image removes or replaces, but in which users have files.

rmdir(2) would leave such a directory alone anyway; finding it beforehand lets the plan say so.
"""

from __future__ import annotations

from cellblock.jail.merge.action_lists import ActionIndex, ActionList
from cellblock.jail.merge.change_plan import Action, Finding
from cellblock.jail.tree.access import TreeAccess


def left_to_users(actions: ActionList, access: TreeAccess) -> tuple[list[Finding], list[Action]]:
    """Drop the actions that need such a directory gone. Findings; and what could not take place."""
    every = actions.all()
    folders = [action for action in every if _takes_folder(action)]
    numbers = ActionIndex(every if folders else ())
    kept: set[bytes] = set()
    gone: set[bytes] = set()

    def goes(path: bytes) -> bool:
        if path in gone:
            return True
        number = numbers.of_path(path)
        return number is not None and every[number].verb == "remove"

    for action in sorted(folders, key=lambda one: one.path.count(b"/"), reverse=True):
        below = action.path + b"/"
        if all(goes(below + name) for name in access.names(action.path)):
            gone.add(action.path)
        else:
            kept.add(action.path)
    findings, displaced = [], []
    for action in folders:
        if action.path not in kept:
            continue
        if action.verb == "rmdir":
            why = "users have files in it, and the image no longer has it"
            findings.append(Finding("kept", action.path, why))
        else:
            findings.append(
                Finding("conflict", action.path, "users have files in it; it is no directory in the image")
            )
            displaced.append(action)
    if kept:
        actions.keep(lambda action: action.path not in kept or not _takes_folder(action))
    return findings, displaced


def _takes_folder(action: Action) -> bool:
    before = action.before
    return action.verb == "rmdir" or (action.verb == "put" and before is not None and before.kind == "d")
