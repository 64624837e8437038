# SPDX-License-Identifier: Apache-2.0
"""Forms the tags under which cosign looks for an image's signatures (its specs/SIGNATURE_SPEC.md).

Newer releases of cosign look for OCI referrers instead. All releases know the tags, so push.py sets them.
"""

from __future__ import annotations

from cellblock.oci.model import Descriptor

SIGNATURE_TYPE = "application/vnd.dev.cosign.artifact.sig.v1+json"
ATTESTATION_TYPE = "application/vnd.dev.cosign.artifact.att.v1+json"
_SUFFIXES = {SIGNATURE_TYPE: "sig", ATTESTATION_TYPE: "att"}


def cosign_tag(artifact: Descriptor, subject: str) -> str | None:
    """The tag for an artifact about the image of digest `subject`; None when cosign does not look for it."""
    suffix = _SUFFIXES.get(artifact.artifact_type or "")
    return f"{subject.replace(':', '-')}.{suffix}" if suffix else None
