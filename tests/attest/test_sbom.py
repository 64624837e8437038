# SPDX-License-Identifier: Apache-2.0
"""Bills of materials: what they list, and that SPDX and CycloneDX documents are valid."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from cellblock.attest.bill import Bill, bill_of
from cellblock.attest.cyclonedx import write_cyclonedx
from cellblock.attest.licences import combined, licences_of
from cellblock.attest.spdx import write_spdx
from cellblock.attest.subject import Subject
from cellblock.debian.package_database import installed_packages, is_database
from cellblock.oci.contents import ContentsReader
from tests.attest.conftest import COPYRIGHT, MakeSubject
from tests.attest.test_audit import lock
from tests.oci.layers import member

EPOCH = 1767225600


@pytest.fixture
def bill(billed: Subject) -> Bill:
    return bill_of(billed, lock(("munge", "0.5.16-1", "Debian trixie/main")), EPOCH)


def test_a_bill_has_the_packages_with_what_is_known_of_them(bill: Bill) -> None:
    library, munge = bill.packages
    assert library.purl == "pkg:deb/debian/libstdc%2B%2B6@1:14.2-1?arch=amd64&distro=debian-13"
    assert (library.installed.source, library.installed.source_version) == ("gcc-14", "14.2-1")
    assert library.licences is not None
    assert library.licences.expression == (
        "(Artistic-1.0-Perl OR GPL-2.0-or-later) AND LicenseRef-debian-public-domain"
    )
    assert (library.sha256, munge.sha256) == (None, "0" * 64)
    assert munge.licences is None


def test_a_bill_has_the_programs_that_no_package_brought(bill: Bill) -> None:
    assert [(file.path, file.sha256) for file in bill.files] == [
        ("/usr/lib/os-release", hashlib.sha256(b'ID=debian\nVERSION_ID="13"\n').hexdigest()),
        ("/usr/lib/spank_jail.so", hashlib.sha256(b"compiled").hexdigest()),
    ]


def test_an_image_without_packages_has_a_bill_of_its_files(make: MakeSubject) -> None:
    bill = bill_of(make([member("out/spank_jail.so", "compiled")], name="plugins"))
    assert (bill.packages, [file.path for file in bill.files]) == ((), ["/out/spank_jail.so"])
    assert json.loads(write_spdx(bill))["spdxVersion"] == "SPDX-2.3"


def test_spdx_is_valid_as_spdx_tools_reads_it(bill: Bill, tmp_path: Path) -> None:
    from spdx_tools.spdx.parser.parse_anything import parse_file
    from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

    path = tmp_path / "it.spdx.json"
    path.write_bytes(write_spdx(bill))
    document = parse_file(str(path))
    assert validate_full_spdx_document(document) == []
    assert {package.name for package in document.packages} == {
        "localhost/cellblock/worker",
        "cellblock-worker",
        "libstdc++6",
        "munge",
    }


def test_spdx_says_what_the_bill_says(bill: Bill) -> None:
    data: dict[str, Any] = json.loads(write_spdx(bill))
    packages = {package["name"]: package for package in data["packages"]}
    assert data["creationInfo"]["created"] == "2026-01-01T00:00:00Z"
    assert packages["munge"]["checksums"] == [{"algorithm": "SHA256", "checksumValue": "0" * 64}]
    assert packages["libstdc++6"]["licenseDeclared"] == (
        "(Artistic-1.0-Perl OR GPL-2.0-or-later) AND LicenseRef-debian-public-domain"
    )
    assert packages["localhost/cellblock/worker"]["versionInfo"] == bill.subject.image.digest
    # Section 7.9: the SHA-1 of the files' SHA-1s.
    sums = "".join(sorted(file.sha1 for file in bill.files)).encode()
    code = packages["cellblock-worker"]["packageVerificationCode"]["packageVerificationCodeValue"]
    assert code == hashlib.sha1(sums).hexdigest()


def test_cyclonedx_is_valid_by_its_schema(bill: Bill) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(write_cyclonedx(bill).decode()) is None
    assert validator.validate_str('{"bomFormat": "CycloneDX", "specVersion": "1.6", "x": 1}') is not None


def test_cyclonedx_says_what_the_bill_says(bill: Bill) -> None:
    data: dict[str, Any] = json.loads(write_cyclonedx(bill))
    components = {component["name"]: component for component in data["components"]}
    assert data["metadata"]["timestamp"] == "2026-01-01T00:00:00+00:00"
    assert components["munge"]["hashes"] == [{"alg": "SHA-256", "content": "0" * 64}]
    assert components["munge"]["purl"] == "pkg:deb/debian/munge@0.5.16-1?arch=amd64&distro=debian-13"
    assert components["/usr/lib/spank_jail.so"]["type"] == "file"


@pytest.mark.parametrize("write", [write_spdx, write_cyclonedx])
def test_the_same_image_gives_the_same_bytes(write: Any, billed: Subject) -> None:
    assert write(bill_of(billed, None, EPOCH)) == write(bill_of(billed, None, EPOCH))


def test_two_images_give_documents_of_two_names(make: MakeSubject) -> None:
    bills = [bill_of(make([member("usr/x", text)])) for text in ("1", "2")]
    assert len({json.loads(write_spdx(each))["documentNamespace"] for each in bills}) == 2
    assert len({json.loads(write_cyclonedx(each))["serialNumber"] for each in bills}) == 2


def test_packages_that_were_removed_are_not_listed(make: MakeSubject) -> None:
    status = "\n".join(
        f"Package: {name}\nStatus: {status}\nVersion: 1\nArchitecture: amd64\n"
        for name, status in (
            ("a", "install ok installed"),
            ("b", "deinstall ok config-files"),
            ("c", "hold ok installed"),
            ("d", "install ok half-configured"),
        )
    )
    subject = make([member("var/lib/dpkg/status", status)])
    contents = ContentsReader(subject.layout, keep=is_database).image(subject.image)
    assert [package.name for package in installed_packages(contents)] == ["a", "c"]


@pytest.mark.parametrize(
    ("debian", "spdx"),
    [
        ("Expat", "MIT"),
        ("GPL-3", "GPL-3.0-only"),
        ("LGPL-2.1+", "LGPL-2.1-or-later"),
        ("GFDL-NIV-1.3+", "GFDL-1.3-no-invariants-or-later"),
        ("BSD-3-clause or GPL-2", "BSD-3-Clause OR GPL-2.0-only"),
        ("LGPL-2.1+ or Expat, and GPL-3", "(LGPL-2.1-or-later OR MIT) AND GPL-3.0-only"),
        ("GPL-2+ with OpenSSL exception", "LicenseRef-debian-GPL-2-or-later-with-OpenSSL-exception"),
    ],
)
def test_debians_short_names_become_spdx_expressions(debian: str, spdx: str) -> None:
    licences = combined([debian])
    assert licences is not None
    assert sorted(licences.expression.split(" AND ")) == sorted(spdx.split(" AND "))


def test_a_copyright_file_of_another_form_says_nothing() -> None:
    assert licences_of("This package was debianized by somebody.\n") is None
    assert licences_of(COPYRIGHT.replace("Files: *", "Files")) is None
