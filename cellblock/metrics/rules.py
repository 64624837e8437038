# SPDX-License-Identifier: Apache-2.0
"""Finds the alert rules for Prometheus, deploy/prometheus/rules.yaml, for `build.py render rules`."""

from __future__ import annotations

from pathlib import Path

from cellblock import paths

NAME = "cellblock-rules.yaml"


def rules_file() -> Path:
    """The file of rules."""
    return paths.PROJECT / "deploy" / "prometheus" / "rules.yaml"
