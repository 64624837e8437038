# SPDX-License-Identifier: Apache-2.0
"""Defines the upgrade plan, with every change of an upgrade or rollback, and reads and writes it as a file.

planner.py makes the plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

from cellblock.errors import CellblockError, NewerFormatError
from cellblock.jail.merge.action import Action as Action
from cellblock.jail.merge.action import Verb as Verb
from cellblock.jail.merge.action_lists import ActionList, by_path
from cellblock.jail.source.identity import SourceIdentity
from cellblock.jail.tree import manifest
from cellblock.jail.tree.access import Stamp
from cellblock.jail.tree.entry import Entry, order, shown

FORMAT = 1

_NAMED = 100
"""How many differences of two plans are named."""
_HINT = "`jail upgrade SOURCE VOLUME --plan --output FILE` writes one"

Operation = Literal["upgrade", "rollback", "repair"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that stays as users have it: `kept` quietly, or a `conflict` that a person should see."""

    kind: Literal["kept", "conflict"]
    path: bytes
    why: str


@dataclass(frozen=True, slots=True)
class PackageChange:
    """The change of a package's version; a version is empty where there is no package."""

    key: str
    verdict: Literal["update", "add", "remove", "kept"]
    before: str
    after: str
    why: str = ""


@dataclass(frozen=True)
class Plan:
    """A plan, with its actions in the order in which they are carried out."""

    operation: Operation
    base_manifest: str
    """SHA-256 of the volume's manifest that this starts from."""
    source: SourceIdentity
    actions: Sequence[Action] = ()
    """A tuple, or where they are many what reads them from a file."""
    findings: tuple[Finding, ...] = ()
    packages: tuple[PackageChange, ...] = ()
    glibc: tuple[str, str] | None = None
    """The upstream versions of the C library, when they differ: such a change needs a volume without jobs."""
    regenerate_cache: bool = False
    """Whether ld.so.cache has to be made anew, because users' libraries are in it too."""
    contents: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    """Digest -> content of merged files, which no source has. Not part of a plan's file."""

    def same_as(self, other: Plan) -> list[str]:
        """How the other plan differs, in sentences; empty when it does the same to the same tree."""
        found = []
        if self.base_manifest != other.base_manifest:
            found.append("the volume was upgraded or rolled back since")
        if self.source.id != other.source.id:
            found.append(f"the source is {other.source} now")
        found.extend(islice(_differences(by_path(self.actions), by_path(other.actions)), _NAMED))
        return found


def _differences(mine: Iterator[Action], theirs: Iterator[Action]) -> Iterator[str]:
    """List the differences of two sorted sequences of actions."""
    mark = "changed in the tree since"
    one, two = next(mine, None), next(theirs, None)
    while one is not None or two is not None:
        if two is None or (one is not None and order(one.path) < order(two.path)):
            assert one is not None
            yield f"{shown(one.path)}: {mark}; nothing would be done to it now"
            one = next(mine, None)
        elif one is None or order(two.path) < order(one.path):
            yield f"{shown(two.path)}: {mark}; {two.summary} was not planned"
            two = next(theirs, None)
        else:
            if _essence(one) != _essence(two):
                yield f"{shown(one.path)}: {mark}"
            one, two = next(mine, None), next(theirs, None)


def _essence(action: Action) -> tuple[object, ...]:
    return (action.verb, action.before, action.after)


def write(plan: Plan, path: Path) -> None:
    """Write a plan as JSON lines: a head, then an object each for packages, findings and actions."""
    head: dict[str, Any] = {
        "format": FORMAT,
        "operation": plan.operation,
        "base_manifest": plan.base_manifest,
        "source": asdict(plan.source),
        "glibc": plan.glibc,
        "regenerate_cache": plan.regenerate_cache,
    }
    with path.open("w", encoding="utf-8") as file:
        for line in _lines(head, plan):
            file.write(json.dumps(line) + "\n")


def _lines(head: dict[str, Any], plan: Plan) -> Iterable[dict[str, Any]]:
    """Read the lines one at a time: a plan may have a hundred thousand."""
    yield head
    for package in plan.packages:
        yield {"package": asdict(package)}
    for one in plan.findings:
        yield {"finding": [one.kind, _text(one.path), one.why]}
    for action in plan.actions:
        yield {
            "action": action.verb,
            "path": _text(action.path),
            "before": _line(action.before),
            "after": _line(action.after),
            "stamp": action.stamp,
            "note": action.note,
            "beside": action.beside,
            "link": _text(action.link),
        }
    yield {"end": len(plan.actions)}


def read(path: Path, *, actions_too: bool = True) -> Plan:
    """Read what `write` wrote, or all but its actions, which come last and may be many.

    Raises CellblockError.
    """
    try:
        packages: list[PackageChange] = []
        findings: list[Finding] = []
        actions, count = ActionList(), 0
        with path.open(encoding="utf-8") as file:
            head = json.loads(next(file, ""))
            if isinstance(head["format"], int) and head["format"] > FORMAT:
                raise NewerFormatError(path, head["format"], FORMAT)
            if head["format"] != FORMAT:
                raise ValueError(f"format {head['format']}; this Cellblock reads {FORMAT}")
            one: dict[str, Any] = {}
            for one in map(json.loads, file):
                if "action" in one and not actions_too:
                    one = {"end": 0}
                    break
                if "action" in one:
                    actions.append(_action(one))
                    count += 1
                elif "finding" in one:
                    kind, name, why = one["finding"]
                    findings.append(Finding(kind, _bytes(name), why))
                elif "package" in one:
                    packages.append(PackageChange(**one["package"]))
        if one != {"end": count}:
            raise ValueError("the end is missing: the file was cut off")
        if head["operation"] not in get_args(Operation):
            raise ValueError(f"unknown operation {head['operation']!r}")
        return Plan(
            operation=head["operation"],
            base_manifest=head["base_manifest"],
            source=SourceIdentity(**head["source"]),
            actions=actions.all(),
            findings=tuple(findings),
            packages=tuple(packages),
            glibc=tuple(head["glibc"]) if head["glibc"] else None,
            regenerate_cache=head["regenerate_cache"],
        )
    except FileNotFoundError:
        raise CellblockError(f"there is no plan {path}", hint=_HINT) from None
    except IsADirectoryError:
        raise CellblockError(f"{path} is a directory, and no plan", hint=_HINT) from None
    except ValueError as error:
        raise CellblockError(f"{path}: this is no plan of an upgrade: {error}", hint=_HINT) from None
    except (KeyError, TypeError, IndexError):
        raise CellblockError(
            f"{path}: this is no plan of an upgrade: something in it is missing or of another kind",
            hint=_HINT,
        ) from None


def _action(one: dict[str, Any]) -> Action:
    if one["action"] not in get_args(Verb):
        raise ValueError(f"unknown action {one['action']!r}")
    return Action(
        verb=one["action"],
        path=_bytes(one["path"]),
        before=_entry(one["before"]),
        after=_entry(one["after"]),
        stamp=Stamp(*one["stamp"]) if one["stamp"] else None,
        note=one["note"],
        beside=one["beside"],
        link=_bytes(one["link"]),
    )


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _line(entry: Entry | None) -> str | None:
    return None if entry is None else _text(manifest.line(entry)).rstrip("\n")


def _entry(line: str | None) -> Entry | None:
    return None if line is None else manifest.parse(_bytes(line))
