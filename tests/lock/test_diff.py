# SPDX-License-Identifier: Apache-2.0
"""What `lock --diff` says of two locks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cellblock.cli.images.lock import _changes
from cellblock.lock.archives import PackageArchive
from cellblock.lock.diff import Change, diff
from cellblock.lock.model import Lock, LockedImage, LockedPackage


def package(name: str, version: str = "1", *images: str, security: bool = False) -> LockedPackage:
    return LockedPackage(
        name=name,
        version=version,
        architecture="amd64",
        sha256=f"{hash((name, version)) & 0xFFFF:064x}",
        size=1,
        installed_size=1,
        filename=f"pool/{name}.deb",
        archive=0,
        origin="Debian trixie/main",
        security=security,
        images=images or ("base", "worker"),
    )


def lock(*packages: LockedPackage) -> Lock:
    return Lock(
        variant="debian13",
        architecture="amd64",
        date="2026-11-20T02:11:10Z",
        archives=(PackageArchive(("http://a.test/debian",), "trixie", ("main",)),),
        images={
            "base": LockedImage("base", None, ("passwd",), ()),
            "worker": LockedImage("worker", "base", ("slurmd",), ()),
        },
        packages={one.name: one for one in packages},
    )


def only(old: Lock, new: Lock) -> Change:
    (change,) = diff(old, new).changes
    return change


def test_two_equal_locks_differ_in_nothing_and_dates_and_mirrors_do_not_count() -> None:
    old = lock(package("a"))
    elsewhere = replace(old.archives[0], uris=("http://b.test/debian",))
    assert not diff(old, replace(old, date="2027-01-01T00:00:00Z", archives=(elsewhere,)))


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("2.41-12", "2.41-12+deb13u1", "upgraded"),
        ("9.0", "10.0", "upgraded"),
        ("1.0~rc1", "1.0", "upgraded"),
        ("1:1.0", "2.0", "downgraded"),
    ],
)
def test_versions_are_ordered_as_dpkg_orders_them(old: str, new: str, kind: str) -> None:
    assert only(lock(package("a", old)), lock(package("a", new))).kind == kind


def test_what_comes_and_goes_is_told_with_the_images_it_concerns() -> None:
    gone, come = package("gone", "1", "worker"), package("come", "1", "base", "worker")
    changes = {change.name: change for change in diff(lock(gone), lock(come)).changes}
    assert (changes["gone"].kind, changes["gone"].images) == ("removed", ("worker",))
    assert (changes["come"].kind, changes["come"].images) == ("added", ("base", "worker"))


def test_only_an_upgrade_to_what_the_security_suite_carries_is_marked() -> None:
    old = package("a", "1", security=True)
    assert only(lock(old), lock(package("a", "2", security=True))).security
    assert not only(lock(old), lock(package("a", "2"))).security
    assert not only(lock(), lock(old)).security


def test_the_same_version_with_other_bytes_is_told() -> None:
    old = package("a")
    assert only(lock(old), lock(replace(old, sha256="0" * 64))).kind == "rebuilt"


def test_a_package_that_other_images_hold_now_is_told_with_those() -> None:
    change = only(lock(package("a", "1", "base")), lock(package("a", "1", "base", "worker")))
    assert (change.kind, change.images) == ("moved", ("worker",))


def test_many_that_moved_together_are_one_line() -> None:
    names = [f"p{number:02d}" for number in range(12)]
    old = lock(*(package(name, "1", "base") for name in names), package("other", "1", "base", "worker"))
    new = lock(*(package(name, "1", "base", "worker") for name in names), package("other", "1", "worker"))
    first = ", ".join(names[:8])
    assert _changes(diff(old, new), ("base", "worker")) == [
        "            other  1 (in other images)  base",
        f"            12 packages, versions as they were, now in worker: {first} and 4 more "
        "(--json lists them)",
    ]


def test_what_else_changed_is_told_in_sentences() -> None:
    old = lock()
    images = {
        "base": LockedImage("base", None, ("login",), ()),
        "jail": LockedImage("jail", "base", (), ()),
    }
    security = PackageArchive(("http://a.test/security",), "trixie-security", ("main",))
    new = replace(
        old, images=images, archives=(*old.archives, security), tarballs={"slurm": "ab"}, snapshot="20261101"
    )
    assert diff(old, new).other == (
        "image base asks for login",
        "image base no longer asks for passwd",
        "image jail is new",
        "image worker is gone",
        "tarball slurm: none -> ab",
        "archives: trixie main -> trixie main, trixie-security main",
        "snapshot: none -> 20261101",
    )
