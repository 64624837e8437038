"""`build.py jail upgrade|apply|rollback|history`: change a jail volume, and back."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cellblock.cli.jail import image_reference
from cellblock.cli.options import JsonOption, LogOption, VariantOption

if TYPE_CHECKING:
    from cellblock.jail.change_plan import Plan
    from cellblock.jail.execution import UpgradeResult

_SHOWN = 40
"""Lines of each kind on a terminal; the file of a plan has all."""

VolumeArgument = Annotated[Path, typer.Argument(help="Directory of the volume.")]
DrainedOption = Annotated[
    bool,
    typer.Option("--drained", help="No job uses the volume: needed for a new version of the C library."),
]


def upgrade(
    source: Annotated[str, typer.Argument(help="What `jail assemble` takes: the image to upgrade to.")],
    volume: VolumeArgument,
    plan: Annotated[bool, typer.Option("--plan", help="Only say what would be done.")] = False,
    output: Annotated[Path | None, typer.Option(help="With --plan: write it to a file for `apply`.")] = None,
    drained: DrainedOption = False,
    variant: VariantOption = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=256, help="How many files to read at once.")] = 8,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Merge another image into a volume while jobs run: what users changed stays."""
    from cellblock.cli.views import make_view
    from cellblock.errors import UsageError
    from cellblock.events import Events
    from cellblock.jail import change_plan
    from cellblock.jail import upgrade as code

    if output is not None and not plan:
        raise UsageError("--output goes with --plan", hint="add --plan, or leave --output out")
    reference = image_reference(source, variant)
    if plan:
        made = code.plan_upgrade(reference, volume, jobs=jobs)
        if output is not None:
            change_plan.write(made, output)
        _print_plan(made, as_json=as_json)
        return
    events = Events()
    with make_view(log, events):
        result = code.upgrade(reference, volume, events, jobs=jobs, drained=drained)
    _print_result(result, as_json=as_json)


def apply(
    plan: Annotated[Path, typer.Argument(help="File that `jail upgrade --plan --output` wrote.")],
    volume: VolumeArgument,
    drained: DrainedOption = False,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Do exactly what a plan says, or nothing when the tree is not what it was made for."""
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.jail import change_plan
    from cellblock.jail import upgrade as code

    expected = change_plan.read(plan)
    events = Events()
    with make_view(log, events):
        result = code.upgrade(expected.source.reference, volume, events, expected=expected, drained=drained)
    _print_result(result, as_json=as_json)


def rollback(
    volume: VolumeArgument,
    drained: DrainedOption = False,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Undo the last upgrade; what users changed since stays and is listed."""
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.jail import rollback as code

    events = Events()
    with make_view(log, events):
        result = code.rollback(volume, events, drained=drained)
    _print_result(result, as_json=as_json)


def history(volume: VolumeArgument, as_json: JsonOption = False) -> None:
    """List what was done to a volume, the newest last."""
    from cellblock.jail import Volume
    from cellblock.jail import history as code

    target = Volume(volume.absolute())
    state = target.state()
    done = code.read(target)
    if as_json:
        now = None if state is None else {"source": str(state.source), "since": state.assembled_at}
        print(json.dumps({"now": now, "history": [one.record() for one in done]}))
        return
    for one in done:
        undone = f", undone by {one.undone_by}" if one.undone_by else ""
        print(
            f"{one.number:4d}  {one.finished_at}  {one.operation}: {one.previous} -> {one.source}, "
            f"{one.actions} changes{undone}"
        )
    if state is not None:
        print(f" now  {state.source}, since {state.assembled_at}")


def _print_plan(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(plan_record(plan)))
        return
    for package in plan.packages:
        versions = " -> ".join(one for one in (package.before, package.after) if one)
        why = f" ({package.why})" if package.why else ""
        print(f"{package.verdict:9s} {package.key} {versions}{why}")
    _print_findings(plan)
    groups: dict[str, list[Any]] = {}
    for action in plan.actions:
        groups.setdefault(action.summary, []).append(action)
    for name, actions in sorted(groups.items()):
        for action in actions[:_SHOWN]:
            note = f" ({action.note})" if action.note else ""
            print(f"{name:9s} /{action.path.decode(errors='backslashreplace')}{note}")
        if len(actions) > _SHOWN:
            print(f"{name:9s} ... and {len(actions) - _SHOWN} more")
    if plan.glibc:
        print(f"The C library goes from {plan.glibc[0]} to {plan.glibc[1]}: no job may run (--drained).")
    print(_sum(plan))


def _print_findings(plan: Plan) -> None:
    for finding in plan.findings:
        print(f"{finding.kind:9s} /{finding.path.decode(errors='backslashreplace')}: {finding.why}")


def _print_result(result: UpgradeResult, *, as_json: bool) -> None:
    if as_json:
        late = [[one.kind, one.path.decode(errors="backslashreplace"), one.why] for one in result.late]
        record = plan_record(result.plan, actions=False)
        print(
            json.dumps(
                {
                    "changed": result.changed,
                    "number": result.number,
                    "seconds": round(result.seconds, 3),
                    **record,
                    "late": late,
                }
            )
        )
        return
    if not result.changed:
        print(f"already {result.plan.source}; nothing to do")
        return
    _print_findings(result.plan)
    for one in result.late:
        print(f"{one.kind:9s} /{one.path.decode(errors='backslashreplace')}: {one.why}")
    print(f"{result.plan.operation} to {result.plan.source} in {result.seconds:.1f} s: {_sum(result.plan)}")


def _sum(plan: Plan) -> str:
    counts = Counter(action.summary for action in plan.actions)
    counts.update(finding.kind for finding in plan.findings)
    names = ("update", "add", "remove", "metadata", "beside", "kept", "conflict")
    return ", ".join(f"{counts[name]} {name}" for name in names if counts[name]) or "nothing to do"


def plan_record(plan: Plan, *, actions: bool = True) -> dict[str, Any]:
    """A plan for `--json`."""

    def text(path: bytes) -> str:
        return "/" + path.decode(errors="backslashreplace")

    record: dict[str, Any] = {
        "operation": plan.operation,
        "source": {"reference": plan.source.reference, "id": plan.source.id},
        "packages": [vars(one) for one in plan.packages],
        "kept": [[text(one.path), one.why] for one in plan.findings if one.kind == "kept"],
        "conflicts": [[text(one.path), one.why] for one in plan.findings if one.kind == "conflict"],
        "counts": dict(Counter(action.summary for action in plan.actions)),
        "glibc": plan.glibc,
    }
    if actions:
        for name in ("update", "add", "remove", "metadata", "beside"):
            record[name] = [text(action.path) for action in plan.actions if action.summary == name]
    return record
