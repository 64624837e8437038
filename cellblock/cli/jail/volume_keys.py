# SPDX-License-Identifier: Apache-2.0
"""Makes the keys of `--json` that `jail assemble` and `jail adopt` share."""

from __future__ import annotations

from typing import Any

from cellblock.jail.adopt import AdoptResult
from cellblock.jail.assemble import AssembleResult


def volume_keys(result: AdoptResult | AssembleResult) -> dict[str, Any]:
    """Where the jail is, what it was made of, and whether that was now; `seconds` to milliseconds."""
    return {
        "root": result.root,
        "source": {"reference": result.source.reference, "id": result.source.id},
        "changed": result.changed,
        "entries": result.entries,
        "seconds": round(result.seconds, 3),
    }
