# SPDX-License-Identifier: Apache-2.0
"""`build.py jail init`: fills or upgrades a jail volume in a Kubernetes Job, which may run it again."""

from __future__ import annotations

from typing import Annotated

import typer

from cellblock.cli.jail.assemble import image_reference
from cellblock.cli.jail.change import DrainedOption, VolumeArgument
from cellblock.cli.json_output import print_json
from cellblock.cli.options import (
    AllowLossyOption,
    CaOption,
    JsonOption,
    LogOption,
    PlainHttpOption,
    VariantOption,
)


def init(
    source: Annotated[str, typer.Argument(help="What `jail assemble` takes.")],
    volume: VolumeArgument,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Upgrade a volume that holds another image (else: an error).")
    ] = False,
    drained: DrainedOption = False,
    shards: Annotated[
        int,
        typer.Option(min=1, max=1000, help="How many pods fill it; which this is says JOB_COMPLETION_INDEX."),
    ] = 1,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for another writer.")] = 0.0,
    variant: VariantOption = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, max=256, help="How many files to write at once.")
    ] = None,
    allow_lossy: AllowLossyOption = False,
    plain_http: PlainHttpOption = False,
    ca: CaOption = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Make a volume hold an image, whatever is left to be done, and mark it as ready for the nodes."""
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.jail import initialise as code
    from cellblock.jail.assemble import Options

    options = code.InitialiseOptions(
        Options(jobs, allow_lossy=allow_lossy), shards, upgrade=upgrade, drained=drained, wait_s=wait
    )
    from cellblock.jail.source.registry_access import reach_registries

    reach_registries(plain_http=plain_http, ca=ca)
    events = Events()
    with make_view(log, events):
        result = code.initialise(image_reference(source, variant), volume, events, options)
    if as_json:
        ready = str(result.ready) if result.ready else None
        print_json(
            {
                "done": result.done,
                "waiting": list(result.waiting),
                "ready": ready,
                "seconds": round(result.seconds, 3),
            }
        )
    elif result.waiting:
        waiting = ", ".join(map(str, result.waiting))
        print(f"{volume}: {result.done} in {result.seconds:.1f} s; waiting for shards {waiting}")
    else:
        print(f"{volume}: {result.done} in {result.seconds:.1f} s; {result.ready} says so")
