# SPDX-License-Identifier: Apache-2.0
"""Defines one fault that an audit found in an image, with what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Check = Literal["secret", "privileged", "package", "origin", "plugin-abi", "version", "account"]
CHECKS: tuple[Check, ...] = (
    *("secret", "privileged", "package", "origin"),
    *("plugin-abi", "version", "account"),
)


@dataclass(frozen=True)
class Finding:
    """`what` is wrong, `why` it matters, and what to do `next`.

    `path` is absolute; empty when it is about no file. `package` likewise. `layer` is the digest of the
    layer that brought it, None when it is about the image as a whole or its configuration.
    """

    check: Check
    image: str
    variant: str
    what: str
    why: str
    next: str
    path: str = ""
    package: str = ""
    layer: str | None = None

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "check": self.check,
            "image": self.image,
            "variant": self.variant,
            "layer": self.layer,
            "path": self.path,
            "package": self.package,
            "what": self.what,
            "why": self.why,
            "next": self.next,
        }

    def __str__(self) -> str:
        layer = f", layer {self.layer.removeprefix('sha256:')[:12]}" if self.layer else ""
        return (
            f"{self.image}:{self.variant}{layer}: {self.what}\n"
            f"  {self.check}: {self.why}\n  next: {self.next}"
        )
