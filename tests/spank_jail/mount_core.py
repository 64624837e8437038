# SPDX-License-Identifier: Apache-2.0
"""Gives Python the C code that puts jobs into the jail, for tests and probes; jobs enter by the SPANK plugin.

It parses plans, resolves paths and enters jails. This module turns C's structs into typed values and its one
error struct into `JailError`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cellblock.errors import CellblockError
from tests.c_text import error_text, text_of

try:
    from cellblock._jail_core import ffi, lib
except ImportError as error:  # an installation without a compiler
    raise CellblockError(
        f"the jail's mount core is not compiled ({error})",
        hint="install gcc and the headers of Python, then run: pip install -e .",
    ) from error

Create = Literal["none", "dir", "file"]
Level = Literal["filesystem", "capabilities", "pid"]

_CREATES: dict[Create, int] = {
    "none": lib.JAIL_CREATE_NONE,
    "dir": lib.JAIL_CREATE_DIR,
    "file": lib.JAIL_CREATE_FILE,
}
_LEVELS: dict[Level, int] = {
    "filesystem": lib.JAIL_LEVEL_FILESYSTEM,
    "capabilities": lib.JAIL_LEVEL_CAPABILITIES,
    "pid": lib.JAIL_LEVEL_PID,
}
_ATTRIBUTES: dict[str, int] = {
    "ro": lib.ATTRIBUTE_RO,
    "nosuid": lib.ATTRIBUTE_NOSUID,
    "nodev": lib.ATTRIBUTE_NODEV,
    "noexec": lib.ATTRIBUTE_NOEXEC,
}


class JailError(CellblockError):
    """The core refused or failed. `number` is the errno, 0 where a rule was broken and no call failed.

    `file` and `line` (from 1; 0 = none) are the place in the plan, `target` the path that is meant.
    """

    def __init__(self, text: str, *, file: str, line: int, target: str, syscall: str, number: int) -> None:
        super().__init__(text)
        self.file = file
        self.line = line
        self.target = target
        self.syscall = syscall
        self.number = number


@dataclass(frozen=True)
class PlanEntry:
    """One line of a plan, as `struct jail_entry` has it; docs/jail-plan.md says what it means."""

    line: int
    source: str
    target: str
    type: str
    attributes: frozenset[str]
    parameters: dict[str, str]
    create: Create
    nofail: bool
    per_step: bool
    only_if: str | None


def _text(pointer: Any) -> str:
    return text_of(ffi, pointer)


def _error(err: Any) -> JailError:
    return JailError(
        error_text(ffi, lib, err),
        file=_text(err.file),
        line=err.line,
        target=_text(err.target),
        syscall=_text(err.syscall),
        number=err.number,
    )


def _entry(raw: Any) -> PlanEntry:
    parameters = (raw.parameters[i] for i in range(raw.n_parameters))
    return PlanEntry(
        line=raw.line,
        source=_text(raw.source),
        target=_text(raw.target),
        type=_text(lib.jail_type_name(raw.type)),
        attributes=frozenset(name for name, bit in _ATTRIBUTES.items() if raw.attributes & bit),
        parameters={_text(p.key): _text(p.value) for p in parameters},
        create=next(name for name, value in _CREATES.items() if value == raw.create),
        nofail=bool(raw.nofail),
        per_step=raw.scope == lib.JAIL_SCOPE_STEP,
        only_if=None if raw.only_if == ffi.NULL else _text(raw.only_if),
    )


def _take(plan: Any) -> list[PlanEntry]:
    try:
        return [_entry(plan.entries[i]) for i in range(plan.n_entries)]
    finally:
        lib.jail_plan_free(plan)


def parse_plan(path: Path) -> list[PlanEntry]:
    """The entries of the plan at `path`, in order. Raises JailError with file and line."""
    plan, err = ffi.new("struct jail_plan *"), ffi.new("struct jail_error *")
    if lib.jail_plan_read(os.fsencode(path), plan, err):
        raise _error(err)
    return _take(plan)


def parse_plan_text(text: bytes, name: str = "plan") -> list[PlanEntry]:
    """The same for a plan in memory; `name` stands for the file in errors."""
    plan, err = ffi.new("struct jail_plan *"), ffi.new("struct jail_error *")
    if lib.jail_plan_parse(ffi.from_buffer(text), len(text), os.fsencode(name), plan, err):
        raise _error(err)
    return _take(plan)


def resolve(root: int, path: str, create: Create = "none") -> int:
    """Opens `path` inside the tree at descriptor `root` (O_PATH); makes it as `create` says if missing.

    The caller closes the descriptor. Raises JailError.
    """
    err = ffi.new("struct jail_error *")
    fd: int = lib.jail_resolve_create(root, os.fsencode(path), _CREATES[create], err)
    if fd < 0:
        raise _error(err)
    return fd


@ffi.def_extern()  # type: ignore[untyped-decorator, unused-ignore, misc]
def cellblock_jail_notice(context: Any, text: Any) -> None:
    """Called by the core for each entry that it leaves out."""
    notices: list[str] = ffi.from_handle(context)
    notices.append(_text(text))


def enter(root: Path, plan: Path, *, trust_owners: bool = False, level: Level = "filesystem") -> list[str]:
    """Moves this process into the jail for good; returns a line for each entry that was left out.

    `level` is for what /proc and /sys show; the process keeps its rights until it calls `confine`.
    The process must have one thread. `trust_owners` leaves out the check that root alone can write the
    tree and the plan. Raises JailError: the process then is good for nothing but to end.
    """
    notices: list[str] = []
    handle = ffi.new_handle(notices)
    root_text, plan_text = ffi.new("char[]", os.fsencode(root)), ffi.new("char[]", os.fsencode(plan))
    request = ffi.new("struct jail_entry_request *")
    request.root, request.plan, request.trust_owners = root_text, plan_text, trust_owners
    request.notice, request.context = lib.cellblock_jail_notice, handle
    request.level = _LEVELS[level]
    err = ffi.new("struct jail_error *")
    if lib.jail_enter(request, err):
        raise _error(err)
    return notices


def confine(level: Level) -> None:
    """Takes from this process, for good, what `level` takes; ids and limits can still be set. JailError."""
    err = ffi.new("struct jail_error *")
    if lib.jail_confine(_LEVELS[level], err):
        raise _error(err)


def confine_final(level: Level) -> None:
    """Takes the rest: the last thing before a program is executed. Raises JailError."""
    err = ffi.new("struct jail_error *")
    if lib.jail_confine_final(_LEVELS[level], err):
        raise _error(err)


def allowed_capabilities() -> list[int]:
    """The numbers (CAP_*) that root keeps from level capabilities up."""
    return [number for number in range(64) if lib.jail_confine_allows(number)]


@dataclass(frozen=True)
class RefusedCall:
    """One rule of the system call filter: `error` is the errno that the caller gets."""

    name: str
    number: int
    error: int
    reason: str


def refused_calls() -> list[RefusedCall]:
    """The rules of the system call filter, in the order of the source."""
    rules = (lib.jail_syscall_rules[i] for i in range(lib.jail_syscall_n_rules))
    return [RefusedCall(_text(r.name), r.number, r.error, _text(r.reason)) for r in rules]


def cdi_environment(plan: Path, *, trust_owners: bool = False) -> dict[str, str]:
    """The variables that the cdi entries of the plan at `plan` set in each task. Raises JailError."""
    raw, err = ffi.new("struct jail_plan *"), ffi.new("struct jail_error *")
    environment = ffi.new("struct jail_environment *")
    if lib.jail_plan_read(os.fsencode(plan), raw, err):
        raise _error(err)
    raw.trust_owners = trust_owners
    try:
        if lib.jail_cdi_environment(raw, environment, err):
            raise _error(err)
        texts = (_text(environment.variables[i]) for i in range(environment.n))
        found = {text.partition("=")[0]: text.partition("=")[2] for text in texts}
        lib.jail_environment_free(environment)
        return found
    finally:
        lib.jail_plan_free(raw)


@contextmanager
def failing_call(nth: int, number: int) -> Iterator[None]:
    """Makes the nth system call of the core (from 1) inside the block fail with errno `number`."""
    lib.sys_fault_set(nth, number)
    try:
        yield
    finally:
        lib.sys_fault_set(0, 0)


def failed_call() -> str:
    """Name of the system call that was made to fail since `failing_call` was entered; "" when none was."""
    return _text(lib.sys_fault_name())
