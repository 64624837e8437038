# SPDX-License-Identifier: Apache-2.0
"""Stores attestations of an image beside it: as OCI artifacts that refer to it (image-spec 1.1).

Each document is an artifact of its own, whose type is the document's media type. Signatures are laid out as
cosign reads them: cosign finds the artifact by its type among the image's referrers, or its manifest under
the tag `sha256-HEX.sig` (`.att` for attestations), which a push sets. release/attesting.py calls this.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cellblock.attest.signing import Signer, envelope, simple_signing
from cellblock.attest.subject import Subject
from cellblock.oci.cosign import ATTESTATION_TYPE, SIGNATURE_TYPE
from cellblock.oci.layout import Layout
from cellblock.oci.model import (
    CONFIG,
    EMPTY,
    Configuration,
    Descriptor,
    Manifest,
    Platform,
    digest_of_bytes,
)

_SIMPLE_SIGNING = "application/vnd.dev.cosign.simplesigning.v1+json"
_ENVELOPE = "application/vnd.dsse.envelope.v1+json"
_SIGNATURE = "dev.cosignproject.cosign/signature"
_PREDICATE = "predicateType"
_TITLE = "org.opencontainers.image.title"


@dataclass(frozen=True)
class Document:
    """Something said of an image: its bytes, and the statement about it that is signed."""

    title: str
    """Name of the file that it is written to: `spdx.json`."""
    media_type: str
    predicate_type: str
    data: bytes
    statement: bytes
    """An in-toto statement v1; `data` itself where that is one."""


def attach_documents(subject: Subject, documents: Sequence[Document]) -> list[Descriptor]:
    """Attach each document to its image, in place of an earlier one of its type."""
    layout = subject.layout
    attached = []
    with layout.writing():
        for document in documents:
            empty = layout.write(b"{}", EMPTY)
            blob = replace(
                layout.write(document.data, document.media_type),
                annotations={_TITLE: f"{subject.name}.{document.title}"},
            )
            annotations = {_PREDICATE: document.predicate_type}
            manifest = Manifest(empty, (blob,), annotations)
            attached.append(_attach(layout, subject.image.descriptor, manifest, document.media_type))
    return attached


def attach_signatures(
    subject: Subject, documents: Sequence[Document], signer: Signer, references: Sequence[str]
) -> list[Descriptor]:
    """Sign an image and what `documents` say of it, and attach both, in place of earlier ones.

    `references`, HOST/PATH:TAG, are the names by which the image will be pulled: a policy compares them.
    Raises CellblockError when the key cannot sign.
    """
    layout, image = subject.layout, subject.image
    envelopes = [envelope("application/vnd.in-toto+json", each.statement, signer) for each in documents]
    with layout.writing():
        platform = image.configuration.platform
        attached = [attach_signature(layout, image.descriptor, platform, signer, references)]
        if not documents:
            return attached
        blobs = [
            replace(
                layout.write(data, _ENVELOPE),
                annotations={_SIGNATURE: "", _PREDICATE: document.predicate_type},
            )
            for document, data in zip(documents, envelopes, strict=True)
        ]
        manifest = _as_image(layout, platform, blobs)
        attached.append(_attach(layout, image.descriptor, manifest, ATTESTATION_TYPE))
    return attached


def attach_signature(
    layout: Layout, signed: Descriptor, platform: Platform, signer: Signer, references: Sequence[str]
) -> Descriptor:
    """Sign the image or index that `signed` describes, for each of `references`; it needs not be in `layout`.

    Raises CellblockError when the key cannot sign.
    """
    payloads = [simple_signing(reference, signed.digest) for reference in references]
    signatures = [base64.b64encode(signer.sign(payload)).decode() for payload in payloads]
    with layout.writing():
        blobs = [
            replace(layout.write(payload, _SIMPLE_SIGNING), annotations={_SIGNATURE: signature})
            for payload, signature in zip(payloads, signatures, strict=True)
        ]
        return _attach(layout, signed, _as_image(layout, platform, blobs), SIGNATURE_TYPE)


def _as_image(layout: Layout, platform: Platform, blobs: Sequence[Descriptor]) -> Manifest:
    """cosign reads its artifacts as images: with a configuration that has a diff id for each layer."""
    configuration = Configuration(platform, tuple(blob.digest for blob in blobs)).to_bytes()
    layout.write(configuration, CONFIG)
    config = Descriptor(CONFIG, digest_of_bytes(configuration), len(configuration))
    return Manifest(config, tuple(blobs))


def _attach(layout: Layout, image: Descriptor, manifest: Manifest, artifact_type: str) -> Descriptor:
    plain = Descriptor(image.media_type, image.digest, image.size)
    earlier = layout.referrers(image.digest, artifact_type)
    attached = layout.attach(replace(manifest, subject=plain, artifact_type=artifact_type))
    layout.detach([each.digest for each in earlier if each.digest != attached.digest])
    return attached
