# SPDX-License-Identifier: Apache-2.0
"""`build.py cluster upgrade`: upgrades a running cluster to a newer release of Slurm, or takes it back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cellblock.cli.confirm import ask
from cellblock.cli.json_output import print_json
from cellblock.cli.options import JsonOption, LogOption, MirrorOption, VariantOption, cluster_names

if TYPE_CHECKING:
    from cellblock.cluster.facts.upgrade_record import UpgradeRecord
    from cellblock.cluster.upgrading.upgrade import UpgradePlan


def cluster_upgrade(
    variant: VariantOption = None,
    cluster: Annotated[
        Path | None,
        typer.Option("--cluster", help="The cluster file, whose `variant` is the new one."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="Name of the cluster (default: the file's).", autocompletion=cluster_names
        ),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what would be done; change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    back: Annotated[
        bool,
        typer.Option(
            "--back", help="Take the cluster back to what it was before its last upgrade, from its backup."
        ),
    ] = False,
    wait: Annotated[
        str | None,
        typer.Option(help="How long nodes wait for their jobs (default: 10m); 0 ends the jobs."),
    ] = None,
    mirror: MirrorOption = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Upgrade a cluster that runs to a variant with a newer Slurm; jobs, queue and accounting are kept.

    Interrupted, the same command goes on.
    """
    from cellblock.cli.views import make_view
    from cellblock.cluster.up_request import UpRequest
    from cellblock.errors import UsageError
    from cellblock.events import Events

    if variant and cluster:
        raise UsageError(
            "--variant and --cluster exclude each other: a cluster file names its variant",
            hint="leave out one of them",
        )
    if back:
        _go_back(name, plan, yes, tuple(mirror or ()), log, as_json)
        return
    from cellblock.cluster.upgrading import upgrade as upgrading

    request = UpRequest(name=name, variant=variant, mirrors=tuple(mirror or ()), file=cluster, wait=wait)
    found = upgrading.plan(request)
    if plan and as_json:
        print_json(asdict(found))
        return
    if plan or not yes:
        _print_plan(found)
    if plan:
        return
    if not yes:
        ask(f"Upgrade cluster {found.name}?", hint="say --yes, or --plan")
    events = Events()
    with make_view(log, events):
        done = upgrading.upgrade(request, events)
    if as_json:
        print_json({**_shown(done.record), "seconds": round(done.seconds, 3)})
        return
    print(
        f"cluster {found.name} is of Slurm {found.new_release} after {done.seconds:.0f} s\n"
        f"  backup of before: {done.record.backup}\n  way back: python3 {done.record.back_command}"
    )


def _go_back(
    name: str | None, plan: bool, yes: bool, mirrors: tuple[str, ...], log: str, as_json: bool
) -> None:
    from cellblock.cli.views import make_view
    from cellblock.cluster.definition.names import DEFAULT_NAME
    from cellblock.cluster.upgrading.downgrade import find_way_back, go_back
    from cellblock.events import Events

    name = name or DEFAULT_NAME
    record = find_way_back(name)
    if plan and as_json:
        print_json(_shown(record))
        return
    if plan or not yes:
        print(
            f"cluster {name} goes back from Slurm {record.new_release} to {record.old_release}, variant "
            f"{record.old_variant}.\n"
            f"Queue and accounting will be those of {record.backup};\nwhat came after is backed up, and is "
            "not in them. Sessions on the login node end.\nIn the jail, what users changed since stays."
        )
    if plan:
        return
    if not yes:
        ask(f"Take cluster {name} back?", hint="say --yes, or --plan")
    events = Events()
    with make_view(log, events):
        go_back(name, mirrors, events)
    if as_json:
        print_json(_shown(record))
        return
    print(f"cluster {name} is of Slurm {record.old_release} again, as {record.backup} says")


def _print_plan(found: UpgradePlan) -> None:
    print(
        f"cluster {found.name}: Slurm {found.old_release} ({found.old_variant}) to {found.new_release} "
        f"({found.new_variant}){', which was interrupted and goes on' if found.goes_on else ''}"
    )
    for number, step in enumerate(found.steps, 1):
        print(f"  {number}. {step.what}" + (f"\n     {step.effect}" if step.effect != "nothing" else ""))
    if found.jobs:
        shown = ", ".join(found.jobs[:6]) + (", ..." if len(found.jobs) > 6 else "")
        print(f"jobs that run, for whose end the nodes wait: {len(found.jobs)} ({shown})")


def _shown(record: UpgradeRecord) -> dict[str, str]:
    return {
        "cluster": record.name,
        "old_release": record.old_release,
        "new_release": record.new_release,
        "old_variant": record.old_variant,
        "new_variant": record.new_variant,
        "backup": record.backup,
        "back": record.back_command,
    }
