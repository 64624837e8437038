# SPDX-License-Identifier: Apache-2.0
"""`build.py packages`: makes debs and RPMs of the plugins, for machines that have a Slurm already."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cellblock.cli.json_output import print_json
from cellblock.cli.options import JsonOption, LogOption, MirrorOption, SitesOption, VariantOption


def packages(
    output: Annotated[
        Path, typer.Option("--output", metavar="DIR", help="Folder to write to: new, or of earlier ones.")
    ],
    variant: VariantOption = None,
    slurm_from: Annotated[
        Path | None,
        typer.Option(
            "--slurm-from",
            metavar="DIR",
            help="Compile for the Slurm whose headers are below DIR (default: the variant's own).",
        ),
    ] = None,
    plugin_dir: Annotated[
        str | None,
        typer.Option("--plugin-dir", metavar="PATH", help="Where that Slurm looks for plugins (PluginDir)."),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", help="Sign the list of digests with this key: see docs/attest.md.")
    ] = None,
    mirror: MirrorOption = None,
    locked: Annotated[
        bool, typer.Option("--locked", help="Exactly the packages of locks/VARIANT.lock.yaml, or fail.")
    ] = False,
    sites: SitesOption = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Make packages of the jail, the containers and the tools, for a Slurm that is there already."""
    from cellblock.attest.signing import signer_of_option
    from cellblock.build import BuildRequest
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.release.packages import PackagesRequest, make_packages

    events = Events()
    with make_view(log, events):
        signer = signer_of_option(key)  # before the build: a wrong password is told at once
        build = BuildRequest(
            variant=variant, mirrors=tuple(mirror or ()), locked=locked, sites=tuple(sites or ())
        )
        files = make_packages(PackagesRequest(build, output, slurm_from, plugin_dir, signer), events)
    if as_json:
        print_json({"output": str(output), "files": list(files)})
        return
    made = [name for name in files if name.endswith((".deb", ".rpm"))]
    print(f"{output}: {len(made)} packages")
    for name in made:
        print(f"  {name}")
