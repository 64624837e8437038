# SPDX-License-Identifier: Apache-2.0
"""`build.py audit | sbom | attest`: checks built images, and writes documents about them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cellblock.cli.json_output import print_json
from cellblock.cli.options import JsonOption, LogOption, SitesOption, VariantOption, image_names

ImagesArgument = Annotated[
    list[str] | None,
    typer.Argument(help="Images (default: all that are built).", autocompletion=image_names),
]
FromOption = Annotated[
    str, typer.Option("--from", help="Where the images are: store, engine (podman), or oci:DIR.")
]


def audit(
    images: ImagesArgument = None,
    variant: VariantOption = None,
    policy: Annotated[
        Path | None, typer.Option("--policy", help="What is accepted (default: images/policy.yaml).")
    ] = None,
    source: FromOption = "store",
    sites: SitesOption = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Look for what must not be in an image: secrets, rights, packages, versions that do not fit together."""
    from cellblock.attest.policy import load_policy
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.release.auditing import audit_built, default_policy
    from cellblock.release.subjects import SubjectRequest, open_subjects

    events = Events()
    loaded = load_policy(policy or default_policy(sites or ()))
    request = SubjectRequest(tuple(images or ()), variant, source, sites=tuple(sites or ()))
    with make_view(log, events), open_subjects(request, events) as subjects:
        result = audit_built(subjects, loaded, events)
    if as_json:
        print_json(
            {
                "images": result.images,
                "findings": [finding.to_json() for finding in result.findings],
                "accepted": [
                    {**finding.to_json(), "reason": exception.reason}
                    for finding, exception in result.accepted
                ],
                "unchecked": result.unchecked,
                "seconds": round(result.seconds, 3),
            }
        )
    else:
        for finding in result.findings:
            print(f"{finding}\n")
        for sentence in result.unchecked:
            print(f"not checked: {sentence}")
        accepted = f", {len(result.accepted)} accepted by exceptions" if result.accepted else ""
        count = f"{len(result.findings)} finding{'' if len(result.findings) == 1 else 's'}{accepted}"
        looked_at = f"{len(result.images)} image{'' if len(result.images) == 1 else 's'}"
        print(f"{looked_at} in {result.seconds:.1f} s: {count}")
    if result.findings:
        raise typer.Exit(1)


def sbom(
    image: Annotated[str, typer.Argument(help="The image.", autocompletion=image_names)],
    variant: VariantOption = None,
    form: Annotated[str, typer.Option("--format", help="spdx or cyclonedx.")] = "spdx",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File (default: stdout).")] = None,
    source: FromOption = "store",
    sites: SitesOption = None,
) -> None:
    """Print the software bill of materials of an image."""
    from cellblock.attest.bill import bill_of
    from cellblock.attest.cyclonedx import write_cyclonedx
    from cellblock.attest.spdx import write_spdx
    from cellblock.errors import UsageError
    from cellblock.events import Events
    from cellblock.release.attesting import created_of
    from cellblock.release.locks import lock_of
    from cellblock.release.subjects import SubjectRequest, open_subjects

    writers = {"spdx": write_spdx, "cyclonedx": write_cyclonedx}
    if form not in writers:
        raise UsageError(f"--format {form}: there is no such format", hint="use spdx or cyclonedx")
    request = SubjectRequest((image,), variant, source, sites=tuple(sites or ()))
    with open_subjects(request, Events()) as (subject,):
        data = writers[form](bill_of(subject, lock_of(subject), created_of(subject)))
    if output is None:
        print(data.decode())
    else:
        output.write_bytes(data)


def signed_for(key: str | None, target: str | None) -> str:
    """The repository, HOST/PATH, for which `key` signs; "" without a key.

    Raises UsageError for a key without one: a signature says by which name an image is pulled.
    """
    from cellblock.errors import UsageError
    from cellblock.oci.registry.reference import Reference

    if key and not target:
        raise UsageError(
            "--key: a signature says by which name an image is pulled, and none is given",
            hint="add --for HOST/PATH, or sign with the push: `build.py push HOST/PATH --key KEY`",
        )
    if target and not key:
        raise UsageError("--for says for what --key signs", hint="add --key, or leave --for out")
    return Reference.parse(target).repository if target else ""


def attest(
    images: ImagesArgument = None,
    variant: VariantOption = None,
    key: Annotated[
        str | None,
        typer.Option("--key", help="Sign with this private key: PEM (ECDSA P-256), or one of cosign's."),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--for", metavar="REPO", help="With --key: where it will be pushed to.")
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag", help="With --key: the tag there (default: the variant's name). May be repeated."
        ),
    ] = None,
    sbom_only: Annotated[bool, typer.Option("--sbom-only", help="No provenance.")] = False,
    builder: Annotated[
        str | None, typer.Option("--builder-id", help="URI by which provenance names who built.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the documents into this folder, too.")
    ] = None,
    source: FromOption = "store",
    sites: SitesOption = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Attach SBOM, provenance and, with a key, signatures to images; `push` takes them along."""
    from cellblock.attest.bill import bill_reader
    from cellblock.attest.provenance import BUILDER
    from cellblock.attest.signing import signer_of_option
    from cellblock.cli.views import make_view
    from cellblock.errors import UsageError
    from cellblock.events import Events
    from cellblock.release.attesting import AttestRequest, attest_image
    from cellblock.release.subjects import SubjectRequest, open_subjects

    if source == "engine":
        raise UsageError(
            "the engine's storage cannot hold attestations", hint="attest the store's images, or oci:DIR"
        )
    events = Events()
    where = signed_for(key, target)
    signer = signer_of_option(key)
    request = AttestRequest(
        signer, where, tuple(tag or ()), sbom_only, builder or BUILDER, sites=tuple(sites or ())
    )
    done: dict[str, list[dict[str, object]]] = {}
    chosen = SubjectRequest(tuple(images or ()), variant, source, sites=tuple(sites or ()))
    with make_view(log, events), open_subjects(chosen, events) as subjects:
        reader = bill_reader(subjects[0].layout)
        for subject in subjects:
            attested = attest_image(subject, request, events, reader=reader)
            done[subject.reference] = [each.to_json() for each in attested.artifacts]
            if output is not None:
                output.mkdir(parents=True, exist_ok=True)
                for document in attested.documents:
                    (output / f"{subject.name}.{document.title}").write_bytes(document.data)
    if as_json:
        print_json(done)
        return
    for reference, artifacts in done.items():
        print(reference)
        for artifact in artifacts:
            print(f"  {artifact['digest']} {artifact['artifactType']}")
