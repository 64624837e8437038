# SPDX-License-Identifier: Apache-2.0
"""Writes a bill of materials (bill.py) as SPDX 2.3 in JSON, by spdx-tools, which also validates it.

In it the image is a package that contains the others. If the image's lock still exists, each package has the
SHA-256 of its deb.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from cellblock.attest.bill import TOOL, TOOL_VERSION, Bill, BilledFile, BilledPackage
from cellblock.attest.licences import spdx_licensing
from cellblock.errors import CellblockError
from cellblock.oci.model import canonical

if TYPE_CHECKING:
    from spdx_tools.spdx.model.document import Document
    from spdx_tools.spdx.model.file import File
    from spdx_tools.spdx.model.package import Package
    from spdx_tools.spdx.model.relationship import Relationship

MEDIA_TYPE = "application/spdx+json"
PREDICATE_TYPE = "https://spdx.dev/Document"

# Namespace of the UUIDs by which documents are named: made once, with uuid4, for this purpose.
_NAMESPACE = uuid.UUID("8f6f0f3e-6b1c-4c0e-9c53-3f0a6a8f2a51")
_DOCUMENT = "SPDXRef-DOCUMENT"
_IMAGE = "SPDXRef-Image"
_OWN = "SPDXRef-Own"


def write_spdx(bill: Bill) -> bytes:
    """The document. The same bill gives the same bytes. Raises CellblockError when it is not valid."""
    from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
    from spdx_tools.spdx.writer.json.json_writer import write_document_to_stream

    document = _document(bill)
    faults = validate_full_spdx_document(document)
    if faults:
        raise CellblockError(
            f"the SPDX document of {bill.subject.reference} is not valid: "
            + "; ".join(each.validation_message[:300] for each in faults[:5]),
            hint="a package of the image says something odd of itself; report it with this message",
        )
    buffer = io.StringIO()
    write_document_to_stream(document, buffer, validate=False)
    data: dict[str, Any] = json.loads(buffer.getvalue())
    # In the order of a set in spdx-tools.
    data["packages"].sort(key=lambda each: each["SPDXID"])
    data["relationships"].sort(key=lambda each: (each["relationshipType"], each["relatedSpdxElement"]))
    return canonical(data)


def _document(bill: Bill) -> Document:
    from spdx_tools.spdx.model.actor import Actor, ActorType
    from spdx_tools.spdx.model.document import CreationInfo, Document
    from spdx_tools.spdx.model.extracted_licensing_info import ExtractedLicensingInfo

    created = datetime.fromtimestamp(bill.created, timezone.utc).replace(tzinfo=None)
    reference = bill.subject.reference
    info = CreationInfo(
        spdx_version="SPDX-2.3",
        spdx_id=_DOCUMENT,
        name=reference,
        document_namespace=f"urn:uuid:{uuid.uuid5(_NAMESPACE, f'{reference}@{bill.subject.image.digest}')}",
        creators=[Actor(ActorType.TOOL, f"{TOOL}-{TOOL_VERSION}")],
        created=created,
    )
    licences = {
        identifier: name
        for package in bill.packages
        if package.licences
        for identifier, name in package.licences.references
    }
    return Document(
        info,
        packages=[_image(bill), *_own(bill), *(_package(each) for each in bill.packages)],
        files=[_file(each) for each in bill.files],
        relationships=list(_relationships(bill)),
        extracted_licensing_info=[
            ExtractedLicensingInfo(
                license_id=identifier,
                license_name=name,
                extracted_text=f"Debian's short name '{name}'; its text stands in the copyright files of: "
                + ", ".join(_holders(bill, identifier)),
            )
            for identifier, name in sorted(licences.items())
        ],
    )


def _holders(bill: Bill, identifier: str) -> list[str]:
    return [
        each.installed.name
        for each in bill.packages
        if each.licences and identifier in dict(each.licences.references)
    ]


def _image(bill: Bill) -> Package:
    from spdx_tools.spdx.model.checksum import Checksum, ChecksumAlgorithm
    from spdx_tools.spdx.model.package import Package, PackagePurpose
    from spdx_tools.spdx.model.spdx_no_assertion import SpdxNoAssertion

    digest = bill.subject.image.digest
    return Package(
        spdx_id=_IMAGE,
        name=bill.subject.reference.rpartition(":")[0] or bill.subject.reference,
        version=digest,
        download_location=SpdxNoAssertion(),
        files_analyzed=False,
        checksums=[Checksum(ChecksumAlgorithm.SHA256, digest.removeprefix("sha256:"))],
        primary_package_purpose=PackagePurpose.CONTAINER,
        external_references=[_purl(bill.purl)],
        license_concluded=SpdxNoAssertion(),
        license_declared=SpdxNoAssertion(),
        copyright_text=SpdxNoAssertion(),
    )


def _own(bill: Bill) -> Iterator[Package]:
    """What no package of the distribution brought: the one package here whose files are listed."""
    from spdx_tools.spdx.model.package import Package, PackageVerificationCode
    from spdx_tools.spdx.model.spdx_no_assertion import SpdxNoAssertion

    if not bill.files:
        return
    # Section 7.9: SHA-1 over the files' SHA-1s, sorted, without separators.
    sums = "".join(sorted(file.sha1 for file in bill.files))
    code = hashlib.sha1(sums.encode(), usedforsecurity=False).hexdigest()
    yield Package(
        spdx_id=_OWN,
        name=f"{TOOL}-{bill.subject.name}",
        version=TOOL_VERSION,
        download_location=SpdxNoAssertion(),
        files_analyzed=True,
        verification_code=PackageVerificationCode(code),
        comment="compiled from this project's sources, or laid over by the image's definition",
        license_concluded=SpdxNoAssertion(),
        license_declared=SpdxNoAssertion(),
        copyright_text=SpdxNoAssertion(),
    )


def _package(package: BilledPackage) -> Package:
    from spdx_tools.spdx.model.actor import Actor, ActorType
    from spdx_tools.spdx.model.checksum import Checksum, ChecksumAlgorithm
    from spdx_tools.spdx.model.package import Package, PackagePurpose
    from spdx_tools.spdx.model.spdx_no_assertion import SpdxNoAssertion

    installed = package.installed
    maintainer = re.fullmatch(r"(?P<name>[^<]+?)\s*(?:<(?P<email>[^>]+)>)?", installed.maintainer)
    licence = package.licences.expression if package.licences else None
    homepage = installed.homepage if re.match(r"https?://[^\s/]+", installed.homepage) else None
    return Package(
        spdx_id=_package_id(package),
        name=installed.name,
        version=installed.version,
        download_location=SpdxNoAssertion(),
        files_analyzed=False,
        checksums=[Checksum(ChecksumAlgorithm.SHA256, package.sha256)] if package.sha256 else [],
        supplier=Actor(ActorType.ORGANIZATION, maintainer["name"], maintainer["email"])
        if maintainer
        else SpdxNoAssertion(),
        homepage=homepage,
        source_info=f"built from the source package {installed.source} {installed.source_version}",
        license_concluded=SpdxNoAssertion(),
        license_declared=spdx_licensing().parse(licence) if licence else SpdxNoAssertion(),
        copyright_text=SpdxNoAssertion(),
        primary_package_purpose=PackagePurpose.INSTALL,
        external_references=[_purl(package.purl)],
    )


def _file(file: BilledFile) -> File:
    from spdx_tools.spdx.model.checksum import Checksum, ChecksumAlgorithm
    from spdx_tools.spdx.model.file import File
    from spdx_tools.spdx.model.spdx_no_assertion import SpdxNoAssertion

    return File(
        name=f".{file.path}",
        spdx_id=_file_id(file),
        checksums=[
            Checksum(ChecksumAlgorithm.SHA1, file.sha1),
            Checksum(ChecksumAlgorithm.SHA256, file.sha256),
        ],
        license_concluded=SpdxNoAssertion(),
        copyright_text=SpdxNoAssertion(),
    )


def _relationships(bill: Bill) -> Iterator[Relationship]:
    from spdx_tools.spdx.model.relationship import Relationship, RelationshipType

    yield Relationship(_DOCUMENT, RelationshipType.DESCRIBES, _IMAGE)
    for package in bill.packages:
        yield Relationship(_IMAGE, RelationshipType.CONTAINS, _package_id(package))
    if bill.files:
        yield Relationship(_IMAGE, RelationshipType.CONTAINS, _OWN)
    for file in bill.files:
        yield Relationship(_OWN, RelationshipType.CONTAINS, _file_id(file))


def _purl(purl: str) -> Any:
    from spdx_tools.spdx.model.package import ExternalPackageRef, ExternalPackageRefCategory

    return ExternalPackageRef(ExternalPackageRefCategory.PACKAGE_MANAGER, "purl", purl)


def _package_id(package: BilledPackage) -> str:
    name = re.sub(r"[^A-Za-z0-9.-]", "-", f"{package.installed.name}-{package.installed.architecture}")
    # "libstdc++6" and "libstdc--6" are two packages.
    suffix = f"-{package.installed.name.encode().hex()}" if "+" in package.installed.name else ""
    return f"SPDXRef-Package-{name}{suffix}"


def _file_id(file: BilledFile) -> str:
    return f"SPDXRef-File-{uuid.uuid5(_NAMESPACE, file.path)}"
