# SPDX-License-Identifier: Apache-2.0
"""`build.py jail assemble`: fills a jail volume from an image."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

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

app = typer.Typer(help="The jail volume: what every job sees as `/`.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    # With a callback typer keeps `assemble` a subcommand also while it is the only one.
    pass


@app.command()
def assemble(
    source: Annotated[
        str,
        typer.Argument(
            help="An image of this machine's storage (`jail`: the one built for the variant), "
            "docker://HOST/PATH[:TAG], oci:DIR[:TAG], oci-archive:FILE[:TAG], a tar, or a root directory "
            "(/DIR or ./DIR)."
        ),
    ],
    volume: Annotated[Path, typer.Argument(help="Directory of the volume; made when absent.")],
    variant: VariantOption = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", min=1, max=256, help="How many files to write at once (default: as the volume needs)."
        ),
    ] = None,
    shard: Annotated[
        str,
        typer.Option(
            "--shard", metavar="I/N", help="Write one part of N; the last to finish seals the volume."
        ),
    ] = "0/1",
    allow_lossy: AllowLossyOption = False,
    plain_http: PlainHttpOption = False,
    ca: CaOption = None,
    sites: SitesOption = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Write a jail to a volume: all of it or nothing, and nothing when it is there already."""
    from cellblock.cli.jail.volume_keys import volume_keys
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.jail.assemble import Options
    from cellblock.jail.assemble import assemble as assemble_jail
    from cellblock.jail.source.registry_access import reach_registries
    from cellblock.jail.volume.shards import Shard

    reach_registries(plain_http=plain_http, ca=ca)
    events = Events()
    options = Options(jobs, Shard.parse(shard), allow_lossy)
    with make_view(log, events):
        result = assemble_jail(image_reference(source, variant, sites or ()), volume, events, options=options)
    if as_json:
        print_json(
            {
                **volume_keys(result),
                "bytes": result.bytes,
                "kept": result.kept,
                "waiting": list(result.waiting),
                "losses": [dataclasses.asdict(loss) for loss in result.losses],
            }
        )
    elif result.waiting:
        waiting = ", ".join(map(str, result.waiting))
        print(
            f"shard {shard}: {result.entries} files in {result.seconds:.1f} s; waiting for shards {waiting}"
        )
    elif result.changed:
        print(
            f"{result.root}: {result.entries} files, {result.bytes / 1e6:.1f} MB from {result.source} "
            f"in {result.seconds:.1f} s"
        )
    else:
        print(f"{result.root}: already made from {result.source}; nothing to do")


def image_reference(source: str, variant: str | None, sites: Sequence[Path] = ()) -> str:
    """`source`, with the bare name of one of Cellblock's images replaced by its reference.

    Raises UsageError for the name of an image that is no jail.
    """
    from cellblock import paths

    images = paths.PROJECT / "images"
    declared = any((folder / source / "image.yaml").is_file() for folder in (images, *sites))
    if not re.fullmatch(r"[a-z0-9-]+", source) or not declared:
        return source
    from cellblock.build.references import reference
    from cellblock.project import Project

    project = Project(images, sites)
    project.refuse_other_than_jail(source)
    return reference(source, project.variant(variant))
