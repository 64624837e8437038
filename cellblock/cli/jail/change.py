# SPDX-License-Identifier: Apache-2.0
"""`build.py jail upgrade | apply | rollback | history`: changes a jail volume, and undoes the change.

upgrade.py has the part of `jail upgrade` that runs and prints it.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cellblock.cli.jail.assemble import image_reference
from cellblock.cli.jail.upgrade import JOBS, print_plan, print_result, result_record, run
from cellblock.cli.json_output import print_json
from cellblock.cli.options import (
    AllowLossyOption,
    CaOption,
    JsonOption,
    LogOption,
    PlainHttpOption,
    SitesOption,
    VariantOption,
)
from cellblock.launcher.failure import typeable
from cellblock.text.printable import printable

if TYPE_CHECKING:
    from cellblock.jail.merge.change_plan import Plan


def _not_a_cluster(volume: Path) -> Path:
    """`volume`. Raises UsageError, naming the directory, for the name of a cluster in its place."""
    if volume.name != str(volume) or (volume / ".cellblock").exists():
        return volume
    # The default cluster has the name of a folder of the checkout. A restore may fill an empty directory.
    if volume.is_dir() and not any(volume.iterdir()):
        return volume
    from cellblock.cluster.facts import state
    from cellblock.cluster.up_request import volume_path
    from cellblock.errors import UsageError

    if volume.name in state.names() and volume_path(volume.name).is_dir():
        place = volume_path(volume.name)
        raise UsageError(
            f"{volume} is no directory of a volume; the cluster of that name has its jail in {place}",
            hint=f"name that directory: {place}",
        )
    return volume


VolumeArgument = Annotated[Path, typer.Argument(help="Directory of the volume.", callback=_not_a_cluster)]
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
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, max=256, help="How many files to read at once.")
    ] = JOBS,
    allow_lossy: AllowLossyOption = False,
    plain_http: PlainHttpOption = False,
    ca: CaOption = None,
    sites: SitesOption = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Merge another image into a volume while jobs run: what users changed stays."""
    from cellblock.errors import UsageError
    from cellblock.jail import upgrade as code
    from cellblock.jail.merge import change_plan
    from cellblock.jail.source.registry_access import reach_registries

    reach_registries(plain_http=plain_http, ca=ca)
    if output is not None and not plan:
        raise UsageError("--output goes with --plan", hint="add --plan, or leave --output out")
    reference = image_reference(source, variant, sites or ())
    if plan:
        from cellblock.jail.volume.predicted_losses import predict_losses
        from cellblock.jail.volume.volume import Volume

        made = code.plan_upgrade(reference, volume, jobs=jobs)
        if output is not None:
            change_plan.write(made, output)
        losses = predict_losses(Volume(volume), made)
        print_plan(made, losses, as_json=as_json)
        if not as_json:
            print(f"  next: {_next_of_plan(made, output, source, volume, lossy=bool(losses[0]))}")
        return
    run(
        reference,
        volume,
        jobs=jobs,
        drained=drained,
        allow_lossy=allow_lossy,
        log=log,
        as_json=as_json,
    )


def _next_of_plan(made: Plan, output: Path | None, source: str, volume: Path, *, lossy: bool) -> str:
    if not made.actions:
        return "nothing: the volume has all of it"
    words = (
        ["jail", "apply", str(output), str(volume)] if output else ["jail", "upgrade", source, str(volume)]
    )
    words += ["--allow-lossy"] if lossy else []
    drained = " --drained (when no job runs)" if made.glibc else ""
    losing = ", and loses that" if lossy else ""
    return typeable(f"`{printable(shlex.join(words))}`{drained} does it{losing}")


def apply(
    plan: Annotated[Path, typer.Argument(help="File that `jail upgrade --plan --output` wrote.")],
    volume: VolumeArgument,
    drained: DrainedOption = False,
    allow_lossy: AllowLossyOption = False,
    plain_http: PlainHttpOption = False,
    ca: CaOption = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Do exactly what a plan says, or nothing when the tree is not what it was made for."""
    from cellblock.cli.views import make_view
    from cellblock.errors import UsageError
    from cellblock.events import Events
    from cellblock.jail import upgrade as code
    from cellblock.jail.merge import change_plan
    from cellblock.jail.source.registry_access import reach_registries

    reach_registries(plain_http=plain_http, ca=ca)
    expected = change_plan.read(plan)
    if expected.operation != "upgrade":
        raise UsageError(
            f"{plan} is the plan of a {expected.operation}", hint="only plans of upgrades are applied"
        )
    events = Events()
    with make_view(log, events):
        result = code.upgrade(
            expected.source.reference,
            volume,
            events,
            expected=expected,
            drained=drained,
            allow_lossy=allow_lossy,
        )
    print_result(result, as_json=as_json)


def rollback(
    volume: VolumeArgument,
    to: Annotated[
        int | None,
        typer.Option(
            "--to",
            min=0,
            metavar="N",
            help="Undo all upgrades after number N of `jail history` (0: every one); repairs hold.",
        ),
    ] = None,
    drained: DrainedOption = False,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Undo the last upgrade or repair; what users changed since stays and is listed."""
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.jail import rollback as code
    from cellblock.jail.volume import history as records
    from cellblock.jail.volume.volume import Volume

    events = Events()
    with make_view(log, events):
        if to is None:
            results = [code.rollback(volume, events, drained=drained)]
        else:
            results = code.rollback_to(volume, to, events, drained=drained)
    if to is not None and as_json:
        print_json({"undone": [result_record(result) for result in results]})
        return
    for result in results:
        print_result(result, as_json=as_json)
    if to is None and not as_json:
        hint = records.upgrade_below_a_repair(Volume(volume), results[0].number)
        if hint is not None:
            print(
                typeable(
                    f"  what was undone is a repair; the upgrade before it is still there: `jail rollback "
                    f"{printable(str(volume))} --to {hint.number - 1}` undoes that"
                )
            )


def history(volume: VolumeArgument, as_json: JsonOption = False) -> None:
    """List what was done to a volume, the newest last."""
    from cellblock.jail.apply.transaction_runner import open_volume
    from cellblock.jail.volume import history as code
    from cellblock.jail.volume import record_faults

    target, state = open_volume(volume)
    done = code.listed(target)
    faults = record_faults.faults(target, done)
    if as_json:
        now = {"source": str(state.source), "since": state.assembled_at}
        records = [
            {**one.record(), **code.Damaged(one.number, faults[one.number]).record()}
            if one.number in faults
            else one.record()
            for one in done
        ]
        print_json({"now": now, "history": records})
        return
    for one in done:
        if isinstance(one, code.Damaged):
            print(typeable(f"{one.number:4d}  {one.why}"))
            continue
        undone = f", undone by {one.undone_by}" if one.undone_by else ""
        print(
            f"{one.number:4d}  {one.finished_at}  {one.operation}: {one.previous} -> {one.source}, "
            f"{one.actions} change{'' if one.actions == 1 else 's'}{undone}"
        )
        if one.number in faults:
            print(typeable(f"      damaged: {faults[one.number]}"))
    print(f" now  {state.source}, since {state.assembled_at}")
