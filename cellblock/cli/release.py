# SPDX-License-Identifier: Apache-2.0
"""`build.py release`: makes a release of Cellblock from a clean clone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cellblock.cli.json_output import print_json
from cellblock.cli.options import JsonOption, LogOption, image_names, variant_names


def release(
    version: Annotated[str, typer.Argument(help="The version to be, three numbers (docs/versions.md).")],
    images: Annotated[
        list[str] | None,
        typer.Argument(help="Images to build (default: what a cluster runs).", autocompletion=image_names),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="New folder for all that is made.")] = Path(
        "out/release"
    ),
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Make all of it; publish nothing, and leave this checkout alone."),
    ] = False,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            "--variant",
            "-v",
            help="Variant to build (default: the newest stable one of the family). May be repeated.",
            autocompletion=variant_names,
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Sign images and checksums: PEM, env://VARIABLE, or cosign's.")
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option("--repository", metavar="REPO", help="Where the images go: HOST[:PORT]/PATH."),
    ] = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Make all of a release from a clean clone: tag, sources, packages, attested images, checksums."""
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.release.releasing import CHECKSUMS, ReleaseRequest
    from cellblock.release.releasing import release as make

    request = ReleaseRequest(
        version, output, dry_run, tuple(variant or ()), tuple(images or ()), key, repository
    )
    events = Events()
    with make_view(log, events):
        result = make(request, events)
    if as_json:
        print_json(
            {
                "tag": result.tag,
                "commit": result.commit,
                "files": result.files,
                "published": not dry_run,
            }
        )
        return
    print(f"{output}: {result.tag} of {result.commit[:12]}, {len(result.files)} files in {CHECKSUMS}")
    print("  next: nothing was published" if dry_run else f"  next: git push origin HEAD {result.tag}")
