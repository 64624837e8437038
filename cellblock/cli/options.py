# SPDX-License-Identifier: Apache-2.0
"""Defines the options that several commands share, and completes names of images, variants and clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cellblock import paths


def variant_names() -> list[str]:
    """Names of all variants, for the shell to complete."""
    from cellblock.project import Project

    return list(Project().variants)


def image_names() -> list[str]:
    """Names of all images, for the shell to complete."""
    return [path.parent.name for path in (paths.PROJECT / "images").glob("*/image.yaml")]


def cluster_names() -> list[str]:
    """Names of this machine's clusters, for the shell to complete."""
    from cellblock.cluster.facts.state import names

    return names()


VariantOption = Annotated[
    str | None,
    typer.Option(
        "--variant",
        "-v",
        help="Variant to use (default: the newest stable one of this machine's family).",
        autocompletion=variant_names,
    ),
]
MirrorOption = Annotated[
    list[str] | None,
    typer.Option("--mirror", help="Archive to use: a URL or a whole `deb ...` line. May be repeated."),
]
SitesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--images",
        metavar="DIR",
        help="Folder of a site's own images and variants, which add to those here or take their place. "
        "May be repeated; a later one goes first.",
    ),
]
LogOption = Annotated[
    str, typer.Option("--log", help="How to show progress: auto, plain, or json (JSON lines on stderr).")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
AllowLossyOption = Annotated[
    bool, typer.Option("--allow-lossy", help="Go on where the volume's filesystem cannot hold something.")
]
PlainHttpOption = Annotated[
    bool,
    typer.Option("--plain-http", help="Speak http to the source's registry (CELLBLOCK_REGISTRY_PLAIN_HTTP)."),
]
CaOption = Annotated[
    Path | None,
    typer.Option("--ca", help="File of certificate authorities to trust for it (CELLBLOCK_REGISTRY_CA)."),
]
