"""`build.py audit`, `sbom` and `attest`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cellblock.cli.options import JsonOption, LogOption, VariantOption, image_names

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
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Look for what must not be in an image: secrets, rights, packages, versions that do not fit together."""
    from cellblock import paths
    from cellblock.attest.audit import audit as audit_images
    from cellblock.attest.policy import load_policy
    from cellblock.build.locks import lock_of
    from cellblock.build.subjects import SubjectRequest, open_subjects
    from cellblock.cli.views import make_view
    from cellblock.events import Events

    events = Events()
    loaded = load_policy(policy or paths.PROJECT / "images" / "policy.yaml")
    request = SubjectRequest(tuple(images or ()), variant, source)
    with make_view(log, events), open_subjects(request, events) as subjects:
        locks = {each.reference: lock for each in subjects if (lock := lock_of(each)) is not None}
        result = audit_images(subjects, loaded, locks, events)
    if as_json:
        print(
            json.dumps(
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
        )
    else:
        for finding in result.findings:
            print(f"{finding}\n")
        for sentence in result.unchecked:
            print(f"not checked: {sentence}")
        accepted = f", {len(result.accepted)} accepted by exceptions" if result.accepted else ""
        count = f"{len(result.findings)} findings{accepted}"
        print(f"{len(result.images)} images in {result.seconds:.1f} s: {count}")
    if result.findings:
        raise typer.Exit(1)
