# SPDX-License-Identifier: Apache-2.0
"""Checks an image for setuid and setgid files, and file capabilities, that the policy does not list."""

from __future__ import annotations

from collections.abc import Iterator

from cellblock.attest.checks.checked_image import InspectedImage
from cellblock.attest.finding import Finding
from cellblock.attest.policy import Policy
from cellblock.oci.capability import XATTR, describe_capabilities
from cellblock.oci.layer_tar import Entry

_SETUID, _SETGID = 0o4000, 0o2000
_WHY = "whoever may run it gets rights that are not theirs: each such program is a way to root"


def check(image: InspectedImage, policy: Policy) -> Iterator[Finding]:
    """One finding a file; hard links count by each of their names."""
    for entry in image.contents.entries.values():
        if entry.kind not in ("file", "hardlink"):
            continue
        capabilities = entry.xattr(XATTR)
        if not entry.mode & (_SETUID | _SETGID) and capabilities is None:
            continue
        granted = describe_capabilities(capabilities) if capabilities is not None else None
        problem = _problem(image.subject.name, entry, granted, policy)
        if problem:
            yield Finding(
                "privileged",
                image.subject.name,
                image.subject.variant,
                f"/{entry.path} {problem}",
                _WHY,
                f"remove the right in the image's 'run', or list the file in {policy.where('privileged')}",
                path=f"/{entry.path}",
                layer=image.layer_of(entry),
            )


def _problem(image: str, entry: Entry, granted: str | None, policy: Policy) -> str | None:
    """What is not allowed about a file; None when all is."""
    path = f"/{entry.path}"
    listed = [each for each in policy.fields.privileged if each.allows(image, path)]
    if entry.mode & (_SETUID | _SETGID):
        mode = f"{entry.mode:04o}"
        if not any(each.capabilities is None and each.mode in (None, mode) for each in listed):
            kinds = [name for bit, name in ((_SETUID, "setuid"), (_SETGID, "setgid")) if entry.mode & bit]
            expected = ", ".join(sorted({each.mode for each in listed if each.mode}))
            but = f", and the policy allows {expected}" if expected else ""
            return f"is {' and '.join(kinds)} (mode {mode}, owner {entry.uid}:{entry.gid}){but}"
    if granted is not None and not any(each.capabilities == granted for each in listed):
        expected = ", ".join(sorted({each.capabilities for each in listed if each.capabilities}))
        but = f", and the policy allows {expected}" if expected else ""
        return f"has the capabilities {granted}{but}"
    return None
