# SPDX-License-Identifier: Apache-2.0
"""Checks that all images of a variant have the same versions of packages that talk to each other.

It also checks that users have the same ids in all of them, and that no two users of one image share an id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from cellblock.attest.checks.checked_image import InspectedImage
from cellblock.attest.finding import Finding
from cellblock.attest.policy import Policy


def check_versions(images: Sequence[InspectedImage], policy: Policy) -> Iterator[Finding]:
    """The policy's packages, or all that is built from them, in one version in all images of a variant."""
    for same in _variants(images):
        for package in policy.fields.same_version:
            versions = {
                image.subject.name: ", ".join(sorted(found))
                for image in same
                if (found := _versions(image, package))
            }
            for name, version, others in _outliers(versions):
                yield Finding(
                    "version",
                    name,
                    same[0].subject.variant,
                    f"has {package} {version}, and {others}",
                    "its daemons and clients speak one protocol and open each other's libraries",
                    "build all images of the variant from one lock: `build.py lock`, then `build`",
                    package=package,
                )


def check_accounts(images: Sequence[InspectedImage], policy: Policy) -> Iterator[Finding]:
    """Uid and gid of the policy's users, in all images of a variant that have accounts at all."""
    for same in _variants(images):
        for user in policy.fields.same_ids:
            ids = {
                image.subject.name: _ids(image, user)
                for image in same
                if image.contents.read("etc/passwd") is not None
            }
            for name, mine, others in _outliers(ids):
                yield Finding(
                    "account",
                    name,
                    same[0].subject.variant,
                    f"has {user} as {mine}, and {others}",
                    "Slurm and munge compare ids across machines: a message of another id is refused",
                    "declare the user with fixed ids in the image that all others stand on (images/base)",
                    path="/etc/passwd",
                    package=user,
                )


def check_shared_ids(images: Sequence[InspectedImage]) -> Iterator[Finding]:
    """Accounts and groups of one image that have one number: to the kernel they are one."""
    for image in images:
        for path, what, kind in (("etc/passwd", "users", "uid"), ("etc/group", "groups", "gid")):
            names: dict[str, list[str]] = defaultdict(list)
            for line in (image.contents.read(path) or b"").decode("utf-8", "replace").splitlines():
                fields = line.split(":")
                if len(fields) > 3 and fields[2].isdigit() and fields[0] not in names[fields[2]]:
                    names[fields[2]].append(fields[0])
            for number, those in names.items():
                if len(those) > 1:
                    yield Finding(
                        "account",
                        image.subject.name,
                        image.subject.variant,
                        f"has {what} {' and '.join(those)} with one {kind}, {number}",
                        "to the kernel they are one: each has the files and processes of the other",
                        f"give each a {kind} of its own where it is declared or made",
                        path=f"/{path}",
                        package=those[-1],
                    )


def _versions(image: InspectedImage, name: str) -> set[str]:
    """Of what is built from the source package `name`, or else of the package of that name."""
    built = {each.source_version for each in image.packages if each.source == name}
    return built or {each.version for each in image.packages if each.name == name}


def _variants(images: Sequence[InspectedImage]) -> list[list[InspectedImage]]:
    by_variant: dict[str, list[InspectedImage]] = defaultdict(list)
    for image in images:
        by_variant[image.subject.variant].append(image)
    return list(by_variant.values())


def _outliers(values: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(name, its value, what others have) of those that differ from the most common value."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, value in values.items():
        names[value].append(name)
    if len(names) < 2:
        return
    usual = max(names, key=lambda value: (len(names[value]), value))
    for value, those in sorted(names.items()):
        for name in sorted(those) if value != usual else ():
            yield name, value, f"{', '.join(sorted(names[usual]))} {usual}"


def _ids(image: InspectedImage, user: str) -> str:
    account = _line(image, "etc/passwd", user)
    group = _line(image, "etc/group", user)
    if account is None or len(account) < 4:
        return "no user"
    shown = f"uid {account[2]} gid {account[3]}"
    # The group of the user's name is what files are given to; it may be another than the user's own.
    return shown if group is None or group[2:3] == [account[3]] else f"{shown} (group {group[2]})"


def _line(image: InspectedImage, path: str, name: str) -> list[str] | None:
    lines = (image.contents.read(path) or b"").decode("utf-8", "replace").splitlines()
    fields = (line.split(":") for line in lines)
    return next((each for each in fields if each[0] == name), None)
