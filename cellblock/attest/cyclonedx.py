# SPDX-License-Identifier: Apache-2.0
"""Writes a bill of materials (bill.py) as CycloneDX 1.6 in JSON, by cyclonedx-python-lib."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from cellblock.attest.bill import TOOL, TOOL_VERSION, Bill, BilledFile, BilledPackage
from cellblock.oci.model import canonical

if TYPE_CHECKING:
    from cyclonedx.model.component import Component

MEDIA_TYPE = "application/vnd.cyclonedx+json"
PREDICATE_TYPE = "https://cyclonedx.org/bom"

# As in spdx.py, and another: two documents on one image have two names.
_NAMESPACE = uuid.UUID("5c7f2d9a-2f0d-4a55-8f0e-0c6b0a1d7e42")


def write_cyclonedx(bill: Bill) -> bytes:
    """The document. The same bill gives the same bytes."""
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.tool import ToolRepository
    from cyclonedx.output.json import JsonV1Dot6

    reference, digest = bill.subject.reference, bill.subject.image.digest
    image = _image(bill)
    tool = Component(type=ComponentType.APPLICATION, name=TOOL, version=TOOL_VERSION)
    bom = Bom(
        serial_number=uuid.uuid5(_NAMESPACE, f"{reference}@{digest}"),
        metadata=BomMetaData(
            timestamp=datetime.fromtimestamp(bill.created, timezone.utc),
            tools=ToolRepository(components=[tool]),
            component=image,
        ),
    )
    components = [*map(_package, bill.packages), *map(_file, bill.files)]
    bom.components.update(components)
    bom.register_dependency(image, components)
    data: dict[str, Any] = json.loads(JsonV1Dot6(bom).output_as_string())
    return canonical(data)


def _image(bill: Bill) -> Component:
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    digest = bill.subject.image.digest
    return Component(
        type=ComponentType.CONTAINER,
        name=bill.subject.reference.rpartition(":")[0] or bill.subject.reference,
        version=digest,
        bom_ref=bill.purl,
        purl=PackageURL.from_string(bill.purl),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest.removeprefix("sha256:"))],
    )


def _package(package: BilledPackage) -> Component:
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.contact import OrganizationalEntity
    from cyclonedx.model.license import LicenseAcknowledgement, LicenseExpression
    from packageurl import PackageURL

    installed = package.installed
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=package.sha256)] if package.sha256 else []
    licences = (
        [LicenseExpression(package.licences.expression, acknowledgement=LicenseAcknowledgement.DECLARED)]
        if package.licences
        else []
    )
    return Component(
        type=ComponentType.LIBRARY,
        name=installed.name,
        version=installed.version,
        bom_ref=package.purl,
        purl=PackageURL.from_string(package.purl),
        supplier=OrganizationalEntity(name=installed.maintainer) if installed.maintainer else None,
        hashes=hashes,
        licenses=licences,
        external_references=list(_homepage(installed.homepage)),
        properties=[
            Property(name="cellblock:source-package", value=installed.source),
            Property(name="cellblock:source-version", value=installed.source_version),
        ],
    )


def _homepage(url: str) -> Iterator[Any]:
    from cyclonedx.model import ExternalReference, ExternalReferenceType, XsUri

    if url:
        yield ExternalReference(type=ExternalReferenceType.WEBSITE, url=XsUri(url))


def _file(file: BilledFile) -> Component:
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentType

    return Component(
        type=ComponentType.FILE,
        name=file.path,
        bom_ref=f"file:{file.path}",
        hashes=[
            HashType(alg=HashAlgorithm.SHA_1, content=file.sha1),
            HashType(alg=HashAlgorithm.SHA_256, content=file.sha256),
        ],
    )
