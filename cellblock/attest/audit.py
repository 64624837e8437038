# SPDX-License-Identifier: Apache-2.0
"""Looks in images for what must not be published, such as secrets: for `build.py audit` and `push`.

Each check is a module of cellblock/attest/checks and yields findings; exceptions that the policy allows are
taken out here. All checks see the same files, which are read once. release/auditing.py finds the locks and
the policy for it.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cellblock.attest.checks import consistency, packages, plugin_abi, privileges
from cellblock.attest.checks.checked_image import InspectedImage, inspect_image, keep
from cellblock.attest.checks.secrets import SecretScanner
from cellblock.attest.finding import Finding
from cellblock.attest.policy import Accepted, Policy
from cellblock.attest.subject import Subject
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.lock.model import Lock
from cellblock.oci.contents import ContentsReader
from cellblock.oci.layout import Layout


class AuditFailed(CellblockError):
    """An image holds what the policy does not accept. `findings` says what."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        count = f"{len(findings)} finding{'s' if len(findings) > 1 else ''}"
        super().__init__(
            "\n".join([f"the audit has {count}:", *map(str, findings)]),
            hint="correct each; what you know and accept becomes an exception in the policy, with its reason",
        )


@dataclass(frozen=True)
class Audit:
    """What an audit gave. `accepted` are findings with the exception that covers each.

    `unchecked` says in sentences what could not be checked and why. `seconds` is how long it took.
    """

    images: tuple[str, ...]
    findings: tuple[Finding, ...]
    accepted: tuple[tuple[Finding, Accepted], ...]
    unchecked: tuple[str, ...]
    seconds: float


def audit(
    images: Sequence[Subject],
    policy: Policy,
    locks: Mapping[str, Lock] | None = None,
    events: Events | None = None,
    today: datetime.date | None = None,
) -> Audit:
    """Check `images` against `policy`. `locks` are those that images were built from, by reference.

    `today` (default: the clock's, UTC) decides which exceptions have expired. Raises MalformedImage when an
    image cannot be read.
    """
    started = time.monotonic()
    day = today or datetime.datetime.now(datetime.timezone.utc).date()
    inspected = _inspect(images, events or Events())
    found = sorted(
        _findings(inspected, policy, locks or {}),
        key=lambda each: (each.variant, each.image, each.check, each.path, each.package, each.what),
    )
    findings: list[Finding] = []
    accepted: list[tuple[Finding, Accepted]] = []
    for finding in found:
        covering = [each for each in policy.fields.exceptions if each.covers(finding)]
        valid = [each for each in covering if not each.expired(day)]
        if valid:
            accepted.append((finding, valid[0]))
        elif covering:
            expired = f"{finding.next}; the exception for it expired on {covering[0].until}"
            findings.append(replace(finding, next=expired))
        else:
            findings.append(finding)
    return Audit(
        tuple(image.reference for image in images),
        tuple(findings),
        tuple(accepted),
        tuple(_unchecked(inspected, locks or {})),
        time.monotonic() - started,
    )


def audit_or_raise(
    images: Sequence[Subject],
    policy: Policy,
    locks: Mapping[str, Lock] | None = None,
    events: Events | None = None,
) -> Audit:
    """As `audit`. Raises AuditFailed when there is a finding: what must not go on then, does not."""
    result = audit(images, policy, locks, events)
    if result.findings:
        raise AuditFailed(result.findings)
    return result


def _inspect(images: Sequence[Subject], events: Events) -> list[InspectedImage]:
    readers: dict[Layout, ContentsReader] = {}
    inspected = []
    for image in images:
        with events.step(image.reference, "read its files"):
            reader = readers.setdefault(image.layout, ContentsReader(image.layout, keep=keep))
            inspected.append(inspect_image(image, reader))
    return inspected


def _findings(
    images: Sequence[InspectedImage], policy: Policy, locks: Mapping[str, Lock]
) -> Iterator[Finding]:
    secrets = SecretScanner()
    for image in images:
        yield from secrets.check(image)
        yield from privileges.check(image, policy)
        yield from packages.check_forbidden(image, policy)
        yield from plugin_abi.check(image)
        lock = locks.get(image.subject.reference)
        if lock is not None:
            yield from packages.check_origins(image, policy, lock)
    yield from consistency.check_versions(images, policy)
    yield from consistency.check_accounts(images, policy)
    yield from consistency.check_shared_ids(images)


def _unchecked(images: Sequence[InspectedImage], locks: Mapping[str, Lock]) -> Iterator[str]:
    without = [
        image.subject.reference for image in images if image.packages and image.subject.reference not in locks
    ]
    if without:
        yield (
            f"where the packages of {', '.join(without)} come from: the lock of their build is not here; "
            "build them here: `build.py build`"
        )
