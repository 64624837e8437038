# SPDX-License-Identifier: Apache-2.0
"""Rules for Prometheus: deploy/prometheus/rules.yaml, as it lies there."""

from __future__ import annotations

from pathlib import Path

from cellblock import paths

NAME = "cellblock-rules.yaml"


def rules_file() -> Path:
    """The file of rules."""
    return paths.PROJECT / "deploy" / "prometheus" / "rules.yaml"
