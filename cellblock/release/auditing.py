# SPDX-License-Identifier: Apache-2.0
"""Audits built images with the locks that they were built from, for `build.py audit` and before a push.

cellblock/attest/audit.py has the audit itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from cellblock import paths
from cellblock.attest.audit import Audit, audit, audit_or_raise
from cellblock.attest.policy import Policy, load_policy
from cellblock.attest.subject import Subject
from cellblock.events import Events
from cellblock.lock.model import Lock
from cellblock.release.locks import lock_of


def default_policy(sites: Sequence[Path] = ()) -> Path:
    """The policy of the last of the folders `sites` that has one; without, the project's."""
    own = [path for folder in sites if (path := folder / "policy.yaml").is_file()]
    return [paths.PROJECT / "images" / "policy.yaml", *own][-1]


def audit_built(images: Sequence[Subject], policy: Policy, events: Events) -> Audit:
    """As `cellblock.attest.audit.audit`, with every lock that is still here."""
    return audit(images, policy, _locks(images), events)


def audit_gate(
    policy: Path | None, events: Events, sites: Sequence[Path] = ()
) -> Callable[[Sequence[Subject]], None]:
    """What a push calls before it sends anything: raises AuditFailed for images that must not be sent.

    `policy` is a file (none: the project's, or the site's). Raises DefinitionError at once when it is wrong.
    """
    loaded = load_policy(policy or default_policy(sites))

    def gate(images: Sequence[Subject]) -> None:
        result = audit_or_raise(images, loaded, _locks(images), events)
        for sentence in result.unchecked:
            events.info(f"audit: not checked: {sentence}")

    return gate


def _locks(images: Sequence[Subject]) -> dict[str, Lock]:
    return {image.reference: lock for image in images if (lock := lock_of(image)) is not None}
