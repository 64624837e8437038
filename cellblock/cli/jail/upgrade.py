# SPDX-License-Identifier: Apache-2.0
"""Runs `jail upgrade` and prints its plan and result, for change.py and, without options, for __main__.py.

typer takes longer to load than an upgrade with nothing to do. So __main__.py passes the plainest command
line, `jail upgrade SOURCE VOLUME`, directly to this module.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cellblock.cli.json_output import print_json
from cellblock.text.printable import printable, shown

if TYPE_CHECKING:
    from cellblock.jail.apply.transaction_runner import UpgradeResult
    from cellblock.jail.merge.change_plan import Plan
    from cellblock.jail.volume.predicted_losses import PredictedLosses

JOBS = 8
"""How many files are read at once, unless asked otherwise."""
_SHOWN = 40
"""Lines of each kind on a terminal; the file of a plan has all."""
_LOGS = ("auto", "plain", "json")
_BARE_NAME = re.compile(r"[a-z0-9-]*")


class PlainUpgrade(NamedTuple):
    """`jail upgrade SOURCE VOLUME` with no other options than these."""

    source: str
    volume: Path
    log: str
    as_json: bool


def parse_plain_upgrade(args: list[str]) -> PlainUpgrade | None:
    """What the words after `build.py` ask for if that is a plain upgrade; None: typer is to look at them.

    So it is for whatever could be wrong, and for the bare name of an image, which depends on a variant.
    """
    if args[:2] != ["jail", "upgrade"]:
        return None
    named: list[str] = []
    log, as_json, rest = "auto", False, iter(args[2:])
    for word in rest:
        if word == "--json":
            as_json = True
        elif word == "--log":
            log = next(rest, "")
        elif word.startswith("-"):
            return None
        else:
            named.append(word)
    if len(named) != 2 or _BARE_NAME.fullmatch(named[0]) or log not in _LOGS:
        return None
    return PlainUpgrade(named[0], Path(named[1]), log, as_json)


def run(
    reference: str,
    volume: Path,
    *,
    jobs: int = JOBS,
    drained: bool = False,
    allow_lossy: bool = False,
    log: str,
    as_json: bool,
) -> None:
    """Upgrade, and say what was done. Raises CellblockError and OSError."""
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.jail import upgrade as code

    events = Events()
    with make_view(log, events):
        result = code.upgrade(reference, volume, events, jobs=jobs, drained=drained, allow_lossy=allow_lossy)
    print_result(result, as_json=as_json)


def print_plan(plan: Plan, predicted: PredictedLosses, *, as_json: bool) -> None:
    """A plan and what is predicted of losses, for people or as one JSON object."""
    if as_json:
        _print_record(plan, predicted)
        return
    for package in plan.packages:
        versions = " -> ".join(one for one in (package.before, package.after) if one)
        why = f" ({package.why})" if package.why else ""
        print(printable(f"{package.verdict:9s} {package.key} {versions}{why}"))
    _print_findings(plan)
    groups: dict[str, list[Any]] = {}
    counts: Counter[str] = Counter()
    for action in plan.actions:
        counts[action.summary] += 1
        if counts[action.summary] <= _SHOWN:
            groups.setdefault(action.summary, []).append(action)
    for name, actions in sorted(groups.items()):
        for action in actions:
            note = f" ({action.note})" if action.note else ""
            print(f"{name:9s} {shown(action.path)}{note}")
        if counts[name] > _SHOWN:
            print(f"{name:9s} ... and {counts[name] - _SHOWN} more")
    if plan.glibc:
        print(f"The C library goes from {plan.glibc[0]} to {plan.glibc[1]}: no job may run (--drained).")
    _print_losses(predicted)
    print(_sum(plan))


def _print_losses(predicted: PredictedLosses) -> None:
    from cellblock.jail.volume.filesystem_capabilities import CONSEQUENCES

    lost, unknown = predicted
    for one in lost:
        where = f"{one.what} of {one.count} file{'s' * (one.count != 1)}, for example {one.example}"
        print(printable(f"loss      {where}: {CONSEQUENCES[one.what]}"))
    if lost:
        print("The volume's filesystem cannot hold these: the upgrade is refused without --allow-lossy.")
    for one in unknown:
        where = f"{one.what}, {one.count}, for example {one.example}"
        print(printable(f"unknown   {where}: a plan writes nothing to the volume, so it cannot tell"))
    if unknown:
        print("The upgrade tries whether the volume can hold these before it changes anything.")


def _print_findings(plan: Plan) -> None:
    for finding in plan.findings:
        print(f"{finding.kind:9s} {shown(finding.path)}: {finding.why}")


def print_result(result: UpgradeResult, *, as_json: bool) -> None:
    """What was done, for people or as one JSON object."""
    if as_json:
        print_json(result_record(result))
        return
    if not result.changed:
        print(f"already {result.plan.source}; nothing to do")
        return
    _print_findings(result.plan)
    for one in result.skipped:
        print(f"{one.kind:9s} {shown(one.path)}: {one.why}")
    print(f"{result.plan.operation} to {result.plan.source} in {result.seconds:.1f} s: {_sum(result.plan)}")


def result_record(result: UpgradeResult) -> dict[str, Any]:
    """What was done, for `--json`."""
    skipped = [[one.kind, one.path.decode(errors="backslashreplace"), one.why] for one in result.skipped]
    return {
        "changed": result.changed,
        "number": result.number,
        "seconds": round(result.seconds, 3),
        **plan_record(result.plan),
        "late": skipped,
        "losses": [asdict(one) for one in result.losses],
    }


def _sum(plan: Plan) -> str:
    counts = Counter(action.summary for action in plan.actions)
    counts.update(finding.kind for finding in plan.findings)
    names = ("update", "add", "remove", "metadata", "beside", "kept", "conflict")
    return ", ".join(f"{counts[name]} {name}" for name in names if counts[name]) or "nothing to do"


def _print_record(plan: Plan, predicted: PredictedLosses) -> None:
    """A plan as one JSON object, written as it is made: its lists may have millions of paths."""
    lost, unknown = ([asdict(one) for one in losses] for losses in predicted)
    print(json.dumps({**plan_record(plan), "losses": lost, "losses_unknown": unknown})[:-1], end="")
    for name in ("update", "add", "remove", "metadata", "beside"):
        print(f', "{name}": [', end="")
        paths = (_text(action.path) for action in plan.actions if action.summary == name)
        for number, path in enumerate(paths):
            print(", " * (number > 0) + json.dumps(path), end="")
        print("]", end="")
    print("}")


def _text(path: bytes) -> str:
    return "/" + path.decode(errors="backslashreplace")


def plan_record(plan: Plan) -> dict[str, Any]:
    """A plan for `--json`, but for its actions."""
    return {
        "operation": plan.operation,
        "source": {"reference": plan.source.reference, "id": plan.source.id},
        "packages": [asdict(one) for one in plan.packages],
        "kept": [[_text(one.path), one.why] for one in plan.findings if one.kind == "kept"],
        "conflicts": [[_text(one.path), one.why] for one in plan.findings if one.kind == "conflict"],
        "counts": dict(Counter(action.summary for action in plan.actions)),
        "glibc": plan.glibc,
    }
