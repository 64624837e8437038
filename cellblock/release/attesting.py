# SPDX-License-Identifier: Apache-2.0
"""Attests built images: gathers the facts of their builds, then writes, attaches and signs the documents.

cellblock/attest writes each document. signing.py does this for images that a push sends.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cellblock import paths
from cellblock.attest import cyclonedx, provenance, spdx
from cellblock.attest.artifacts import Document, attach_documents, attach_signatures
from cellblock.attest.bill import bill_of, bill_reader
from cellblock.attest.signing import Signer
from cellblock.attest.subject import Subject
from cellblock.errors import UsageError
from cellblock.events import Events
from cellblock.graph import build_order
from cellblock.oci.contents import ContentsReader
from cellblock.oci.model import Descriptor
from cellblock.project import Project
from cellblock.release.locks import lock_of, record_of
from cellblock.release.subjects import SubjectRequest, open_subjects
from cellblock.text.rfc3339 import seconds


@dataclass(frozen=True)
class AttestRequest:
    """What to say: SBOMs, provenance unless `sbom_only`, and signatures when there is a `signer`.

    A signature is for `HOST/PATH/IMAGE:TAG` below `repository`, for each of `tags` (none: the variant).
    """

    signer: Signer | None = None
    repository: str = ""
    tags: tuple[str, ...] = ()
    sbom_only: bool = False
    builder: str = provenance.BUILDER
    definitions: Path = field(default_factory=lambda: paths.PROJECT / "images")
    sites: tuple[Path, ...] = ()
    """Folders of a site's own definitions (`--images`)."""


@dataclass(frozen=True)
class Attested:
    """What was said of an image, and the artifacts that now refer to it."""

    documents: tuple[Document, ...]
    artifacts: tuple[Descriptor, ...]


def attest_images(images: tuple[str, ...], variant: str, request: AttestRequest, events: Events) -> None:
    """Attest images of the store. Raises as `open_subjects` and `attest_image` do."""
    asked = SubjectRequest(images, variant, definitions=request.definitions, sites=request.sites)
    with open_subjects(asked, events) as subjects:
        reader = bill_reader(subjects[0].layout)
        for subject in subjects:
            attest_image(subject, request, events, reader=reader)


def attest_image(
    subject: Subject,
    request: AttestRequest,
    events: Events,
    reader: ContentsReader | None = None,
) -> Attested:
    """Attach what `request` asks for to an image, in its layout.

    `reader` is one of `bill_reader`, to share among images. Raises MalformedImage when the image cannot be
    read, CellblockError when the key does not sign.
    """
    written = documents(subject, request, events, reader)
    with events.step(subject.name, "attach its documents"):
        attached = attach_documents(subject, written)
        if request.signer is not None:
            references = pulled_as(request.repository, subject.name, request.tags or (subject.variant,))
            attached += attach_signatures(subject, written, request.signer, references)
    return Attested(tuple(written), tuple(attached))


def pulled_as(repository: str, image: str, tags: Sequence[str]) -> list[str]:
    """The references by which an image below `repository`, HOST/PATH, is pulled."""
    return [f"{repository.rstrip('/')}/{image}:{tag}" for tag in tags]


def documents(
    subject: Subject,
    request: AttestRequest,
    events: Events,
    reader: ContentsReader | None = None,
) -> list[Document]:
    """SBOM and provenance of an image; provenance only where its build is known."""
    record = record_of(subject)
    lock = lock_of(subject)
    with events.step(subject.name, "write its SBOM"):
        bill = bill_of(subject, lock, record.epoch if record else created_of(subject), reader)
        written = [
            _bom(subject, "spdx.json", spdx.MEDIA_TYPE, spdx.PREDICATE_TYPE, spdx.write_spdx(bill)),
            _bom(
                subject,
                "cdx.json",
                cyclonedx.MEDIA_TYPE,
                cyclonedx.PREDICATE_TYPE,
                cyclonedx.write_cyclonedx(bill),
            ),
        ]
    if request.sbom_only:
        return written
    if record is None:
        events.warning(
            f"{subject.reference}: this machine has no record of its build, so there is no provenance; "
            "build it here: `build.py build`"
        )
        return written
    declared = Project(request.definitions, request.sites).images
    if subject.name not in declared:
        raise UsageError(f"there is no image '{subject.name}'", hint="see `build.py targets`")
    said = provenance.provenance(
        subject,
        record,
        lock,
        needs=[image.name for image in build_order(declared, [subject.name])],
        commit=record.commit,
        builder=request.builder,
    )
    return [
        *written,
        Document(
            "provenance.json",
            provenance.MEDIA_TYPE,
            provenance.PREDICATE_TYPE,
            said,
            said,
        ),
    ]


def _bom(subject: Subject, title: str, media_type: str, predicate_type: str, data: bytes) -> Document:
    said = provenance.statement(subject, predicate_type, json.loads(data))
    return Document(title, media_type, predicate_type, data, said)


def created_of(subject: Subject) -> int:
    """When the image says it was made, in seconds since the epoch; 0 when it does not say."""
    try:
        return seconds(subject.image.configuration.created or "")
    except ValueError:
        return 0
