# SPDX-License-Identifier: Apache-2.0
"""Passes on how to reach registries (http or https, which authorities), in environment variables.

The options of a command set them, so that whatever opens a source in this process finds them. A volume
remembers its source, and a later verify or upgrade asks that registry again.
"""

from __future__ import annotations

import os
from pathlib import Path

PLAIN_HTTP = "CELLBLOCK_REGISTRY_PLAIN_HTTP"
"""Speak http, if it is not empty."""

CA = "CELLBLOCK_REGISTRY_CA"
"""A file of certificate authorities to trust as well."""


def reach_registries(*, plain_http: bool = False, ca: Path | None = None) -> None:
    """Set how this process and those that it starts reach the registries of sources."""
    if plain_http:
        os.environ[PLAIN_HTTP] = "1"
    if ca is not None:
        os.environ[CA] = str(ca)
