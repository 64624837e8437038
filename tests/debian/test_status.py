# SPDX-License-Identifier: Apache-2.0
"""The status file of dpkg is read as it is, also one that users wrote."""

from __future__ import annotations

from cellblock.debian.status import packages_of, split

MUNGE = b"""Package: munge
Status: install ok installed
Maintainer: Ren\xe9 <r@example.org>
Architecture: amd64
Version: 0.5.16-1
Conffiles:
 /etc/default/munge 0123
 /etc/\xff 4567
Description: one line
 and another
"""
LIBC = b"Package: libc6\nStatus: hold ok installed\nMulti-Arch: same\nArchitecture: amd64\nVersion: 2.41-12\n"
GONE = b"Package: old\nStatus: deinstall ok config-files\nVersion: 1\n"


def test_each_stanza_is_a_package_under_the_name_that_its_files_have() -> None:
    found = {package.key: package for package in packages_of(b"\n\n".join([MUNGE, LIBC, GONE]))}
    assert list(found) == ["munge", "libc6:amd64", "old"]
    assert [package.is_installed for package in found.values()] == [True, True, False]
    assert [package.is_held for package in found.values()] == [False, True, False]
    assert (found["libc6:amd64"].name, found["libc6:amd64"].version) == ("libc6", "2.41-12")
    assert found["munge"].stanza == MUNGE, "byte for byte: it may be written back"


def test_paths_are_bytes_and_lines_for_people_are_text() -> None:
    (munge,) = packages_of(MUNGE)
    assert munge.conffiles == {b"etc/default/munge": "0123", b"etc/\xff": "4567"}
    assert munge.line("Maintainer") == "Ren\N{REPLACEMENT CHARACTER} <r@example.org>"
    assert munge.line("Description") == "one line"
    assert munge.line("Homepage", "none") == "none"


def test_stanzas_that_look_signed_stay_two() -> None:
    text = b"-----BEGIN PGP SIGNED MESSAGE-----\n\n" + GONE + b"\n" + LIBC
    assert [package.key for package in packages_of(text)] == ["old", "libc6:amd64"]


def test_what_is_no_stanza_is_no_package() -> None:
    assert list(packages_of(b"\n\nno colon here\n\n: nameless\n\nVersion: 1\n")) == []
    assert split(b"\n\n\na\n\n\nb") == [b"a\n", b"b\n"]
