# SPDX-License-Identifier: Apache-2.0
"""Checks manifests against Kubernetes' own schemas, by kubernetes-validate."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any


def _versions() -> list[str]:
    package = importlib.util.find_spec("kubernetes_validate")
    assert package is not None, "kubernetes-validate is not installed: `build.py test` installs it"
    folder = Path(str(package.origin)).parent / "kubernetes-json-schema"
    known = {match[1] for path in folder.iterdir() if (match := re.match(r"v(1\.\d+)\.0-", path.name))}
    return sorted(known, key=lambda version: int(version[2:]))[-3:]


VERSIONS = _versions()
"""The last three releases that the validator knows, as 1.32."""


def check(manifest: dict[str, Any], version: str = VERSIONS[-1]) -> None:
    """Raise AssertionError on what the release refuses, or does not know."""
    # It takes two seconds to import, and each process that collects tests imports this module.
    import kubernetes_validate

    try:
        kubernetes_validate.validate(manifest, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        raise AssertionError(f"Kubernetes {version}: {error}") from error
