# SPDX-License-Identifier: Apache-2.0
"""Decides the order in which an upgrade replaces files under running programs.

An upgrade replaces libraries before the programs that need them, and removes what nobody needs last. A
downgrade replaces programs first: an old program runs with a new library, but not the other way round. The
order among libraries is found later, from their content (`elf_needs`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cellblock.jail.merge.action import Action
from cellblock.jail.tree.databases import ACCOUNTS, DPKG, STATUS
from cellblock.jail.tree.entry import order

_LIBRARY = re.compile(rb"(^|/)(lib[^/]*|ld[^/]*)\.so(\.[0-9.]+)?$|/lib[^/]*-[0-9.]+\.so$")
_PROGRAM_FOLDERS = (b"bin/", b"sbin/", b"usr/bin/", b"usr/sbin/", b"usr/libexec/", b"usr/lib/git-core/")

# Ranks of the steps. Numbers, so that a test can say "before".
FOLDERS, ACCOUNT, NEW_LIBRARY, NEW_LINK, LIBRARY, DATA, PROGRAM, RECORD, DATABASE = range(9)
GONE_PROGRAM, GONE, GONE_LIBRARY, GONE_FOLDER, AFTER_FOLDER = range(9, 14)


def is_library(path: bytes) -> bool:
    """Tell by its name whether a file is a library that the dynamic loader may be asked for."""
    return _LIBRARY.search(path) is not None


def rank(action: Action) -> int:
    """The step that an action belongs to, going forward."""
    path, after, before = action.path, action.after, action.before
    program = path.startswith(_PROGRAM_FOLDERS)
    if action.verb == "rmdir":
        return GONE_FOLDER
    if action.verb == "remove":
        return GONE_PROGRAM if program else GONE_LIBRARY if is_library(path) else GONE
    if before is not None and before.kind == "d" and action.verb == "put":
        return AFTER_FOLDER
    if action.verb == "mkdir" or (after is not None and after.kind == "d"):
        return FOLDERS
    if path in ACCOUNTS:
        return ACCOUNT
    if path == STATUS:
        return DATABASE
    if path.startswith(DPKG):
        return RECORD
    if is_library(path) and not action.beside:
        if before is not None:
            return LIBRARY
        return NEW_LINK if after is not None and after.kind == "l" else NEW_LIBRARY
    return PROGRAM if program else DATA


def in_order(actions: Sequence[Action], *, downgrade: bool) -> list[Action]:
    """Sort the actions. Folders are made from the top and removed from the bottom."""

    def key(action: Action) -> tuple[int, bytes]:
        number = rank(action)
        if downgrade and number == LIBRARY:
            number = PROGRAM + 0  # with the programs, after them: see the second part of the key
            return number * 2 + 1, order(action.path)
        return number * 2, order(action.path)

    ordered = sorted(actions, key=key)
    folders = [action for action in ordered if rank(action) == GONE_FOLDER]
    if folders:
        start = ordered.index(folders[0])
        ordered[start : start + len(folders)] = reversed(folders)
    return ordered


def sort_libraries(
    actions: Sequence[Action], needs: Mapping[bytes, Sequence[bytes]], *, downgrade: bool
) -> list[Action]:
    """Put the replaced libraries in order: what one needs comes before it (a downgrade: after it).

    `needs` maps a library's path to the names that it asks the loader for.
    """
    libraries = [action for action in actions if rank(action) == LIBRARY]
    if not libraries:
        return list(actions)
    result = sorted_libraries(libraries, needs, downgrade=downgrade)
    start = next(number for number, action in enumerate(actions) if rank(action) == LIBRARY)
    return [*actions[:start], *result, *actions[start + len(libraries) :]]


def sorted_libraries(
    libraries: Sequence[Action], needs: Mapping[bytes, Sequence[bytes]], *, downgrade: bool
) -> list[Action]:
    """`sort_libraries`, of the replaced libraries alone."""
    by_name: dict[bytes, list[Action]] = {}
    for action in libraries:
        by_name.setdefault(action.path.rpartition(b"/")[2], []).append(action)
    done: set[bytes] = set()
    result: list[Action] = []

    def visit(first: Action) -> None:
        # Without recursion: a chain of libraries may be long, and loops among them do exist (libc, ld.so).
        stack: list[tuple[Action, bool]] = [(first, False)]
        while stack:
            action, finished = stack.pop()
            if finished:
                result.append(action)
                continue
            if action.path in done:
                continue
            done.add(action.path)
            stack.append((action, True))
            names = list(needs.get(action.path, ()))
            if action.after is not None and action.after.kind == "l":
                names.append(action.after.target.rpartition(b"/")[2])
            for name in reversed(names):
                stack.extend((one, False) for one in by_name.get(name, ()) if one.path not in done)

    for action in libraries:
        visit(action)
    if downgrade:
        result.reverse()
    return result
