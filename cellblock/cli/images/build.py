# SPDX-License-Identifier: Apache-2.0
"""`build.py build`: reads the options of a build and prints its result; cellblock/build/ builds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cellblock import paths
from cellblock.cli.json_output import print_json
from cellblock.cli.options import (
    JsonOption,
    LogOption,
    MirrorOption,
    SitesOption,
    VariantOption,
    image_names,
)
from cellblock.errors import UsageError
from cellblock.launcher import up_to_date
from cellblock.launcher.main import STAMP, VENV

# Where buildah and podman note their images, in the storage that they use by default.
_ENGINE_IMAGES = Path("/var/lib/containers/storage/overlay-images/images.json")


def build(
    images: Annotated[
        list[str] | None,
        typer.Argument(help="Images to build (default: what a cluster runs).", autocompletion=image_names),
    ] = None,
    variant: VariantOption = None,
    mirror: MirrorOption = None,
    engine: Annotated[
        str, typer.Option("--engine", help="Engine that builds and holds the images: native or docker.")
    ] = "native",
    locked: Annotated[
        bool, typer.Option("--locked", help="Exactly the packages of locks/VARIANT.lock.yaml, or fail.")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Ask the archives anew which packages there are.")
    ] = False,
    load: Annotated[
        bool, typer.Option("--load", help="Have the images in the storage of buildah and podman.")
    ] = False,
    output: Annotated[
        str | None, typer.Option("--output", help="Copy the images named, or all, to an OCI layout: oci:DIR.")
    ] = None,
    compression: Annotated[
        str, typer.Option("--compression", help="Of layers: zstd[:LEVEL], gzip[:LEVEL] or none.")
    ] = "zstd",
    attest: Annotated[
        bool, typer.Option("--attest", help="Attach SBOM and provenance to the images (see docs/attest.md).")
    ] = False,
    key: Annotated[
        str | None, typer.Option("--key", help="Sign the images with this key, too; implies --attest.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--for", metavar="REPO", help="With --key: where they will be pushed to.")
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option("--cache", help="Registry repository, HOST/PATH, where layers are shared with others."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the root of a failed step, and say how to enter it.")
    ] = False,
    sites: SitesOption = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Build images, and what they need; those that nothing changed for are left alone."""
    from cellblock.attest.signing import signer_of_option
    from cellblock.build import BuildRequest, build_images, copy_images
    from cellblock.cli.images.attest import signed_for
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.oci.layer import Compression
    from cellblock.release.attesting import AttestRequest, attest_images

    folder = layout_folder(output) if output else None
    own = tuple(sites or ())
    before = up_to_date.states_of(input_paths(own))
    events = Events()
    with make_view(log, events):
        request = BuildRequest(
            images=tuple(images or ()),
            variant=variant,
            mirrors=tuple(mirror or ()),
            keep_failed=keep,
            engine=engine,
            locked=locked,
            update=update,
            load=load,
            compression=Compression.parse(compression),
            cache=cache,
            sites=own,
        )
        where = signed_for(key, target)
        signer = signer_of_option(key)  # before the build: a wrong password is told at once
        result = build_images(request, events)
        if attest or signer:
            asked = AttestRequest(signer, where, sites=own)
            attest_images(tuple(result.images), result.variant.name, asked, events)
        if folder:
            # What they need is in them: a layout of one image needs no tag to be said.
            copy_images(result, folder, images or ())
    if as_json:
        print_json(
            {
                "variant": result.variant.name,
                "images": {
                    name: {"reference": image.reference, "id": image.id, "bytes": image.size}
                    for name, image in result.images.items()
                },
                "built": result.built,
                "seconds": round(result.seconds, 3),
                "download_s": round(result.download_s, 3),
            }
        )
        return
    number = len(result.images)
    which = f"all {number} images are" if number > 1 else "the image is"
    done = f"{result.variant.name}: {which} up to date"
    if result.built:
        downloading = f", of which downloading {result.download_s:.1f} s" if result.download_s >= 0.05 else ""
        print(
            f"{result.variant.name}: built {len(result.built)} of {number} image{'s' if number > 1 else ''} "
            f"in {result.seconds:.1f} s{downloading}"
        )
    else:
        print(done)
    args = sys.argv[2:]
    # Files that moved meanwhile went into the build or did not: the next one must look.
    # Images in a storage of which nothing is known may go unnoticed.
    seen = not load or _ENGINE_IMAGES.is_file()
    if seen and up_to_date.is_simple(args) and before == up_to_date.states_of(input_paths(own)):
        after = up_to_date.states_of(result_paths(load, own))
        up_to_date.remember(str(paths.PROJECT), args, done, {**before, **after})


def layout_folder(output: str) -> Path:
    """The folder of `oci:DIR`. Raises UsageError for anything else."""
    kind, _, folder = output.partition(":")
    if kind != "oci" or not folder:
        raise UsageError(f"--output {output}: images are written to an OCI layout", hint="give oci:DIR")
    return Path(folder)


def input_paths(sites: Sequence[Path] = ()) -> list[str]:
    """Files and folders whose change may change what a build makes."""

    from cellblock.project import Project

    declared = Project(sites=sites)
    compiled = {
        str(image.source_folder(name))
        for image in declared.images.values()
        for name in (image.fields.build.sources if image.fields.build else ())
    }
    project = [str(paths.PROJECT / name) for name in ("images", "locks")]
    # As they are named, too: a link may come to lead elsewhere.
    project += [str(path) for path in (*map(Path.absolute, sites), *declared.folders)]
    project += sorted(compiled)
    # With what was installed for it: a library can shape bytes.
    code = [str(paths.PROJECT / "cellblock"), str(paths.PROJECT / VENV / STAMP)]
    # The host's mirrors, its release, and the versions of its tools.
    host = ["/etc/apt/sources.list", "/etc/apt/sources.list.d", "/etc/os-release", "/var/lib/dpkg/status"]
    return [*project, *code, *host]


def result_paths(load: bool, sites: Sequence[Path] = ()) -> list[str]:
    """Files that must still be there, as they are, for a build to have nothing to do."""
    from cellblock.store import checkout  # jail-init, whose command this is, too, does without

    named = paths.PROJECT / checkout.FILE
    found = [str(named), str(paths.cache() / "resolved"), str(paths.cache() / "images")]
    if sites:
        # Equal images of another site have its name in their records.
        found.append(str(paths.cache() / "records" / checkout.identity()))
    return [*found, str(_ENGINE_IMAGES)] if load else found
