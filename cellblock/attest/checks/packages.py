# SPDX-License-Identifier: Apache-2.0
"""Checks an image for packages that it must not hold, or that its lock does not name."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from cellblock.attest.checks.checked_image import InspectedImage
from cellblock.attest.finding import Finding
from cellblock.attest.policy import Policy
from cellblock.debian.package_database import InstalledPackage
from cellblock.lock.model import Lock


def check_forbidden(image: InspectedImage, policy: Policy) -> Iterator[Finding]:
    """One finding a package and rule."""
    for package in image.packages:
        for number, rule in enumerate(policy.fields.forbidden):
            if rule.forbids(image.subject.name, package.name):
                yield Finding(
                    "package",
                    image.subject.name,
                    image.subject.variant,
                    f"holds the package {package.name} {package.version}",
                    rule.reason,
                    "see what needs it: `build.py why`; else change the rule at "
                    f"{policy.where('forbidden', number)}",
                    package=package.name,
                )


def check_origins(image: InspectedImage, policy: Policy, lock: Lock) -> Iterator[Finding]:
    """Compare what is installed with the lock of the variant, and the lock's origins with the policy."""
    locked = {(each.name, each.version, each.architecture): each for each in lock.packages.values()}
    for package in image.packages:
        entry = locked.get((package.name, package.version, package.architecture))
        if entry is None:
            yield _finding(
                image,
                package,
                f"holds {package.name} {package.version} ({package.architecture}), which is not in the lock",
                "nobody can say where it came from, and the next build may not have it",
                f"build again from the lock: `build.py build {image.subject.name} --locked`",
            )
        elif not any(fnmatchcase(entry.origin, allowed) for allowed in policy.fields.origins):
            yield _finding(
                image,
                package,
                f"holds {package.name} {package.version} of the origin '{entry.origin}'",
                f"packages may come from {', '.join(policy.fields.origins)}",
                f"take it from one of these, or allow its origin at {policy.where('origins')}",
            )


def _finding(image: InspectedImage, package: InstalledPackage, what: str, why: str, next_: str) -> Finding:
    return Finding(
        "origin",
        image.subject.name,
        image.subject.variant,
        what,
        why,
        next_,
        package=package.name,
    )
