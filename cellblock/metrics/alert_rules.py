# SPDX-License-Identifier: Apache-2.0
"""Gives the path of deploy/prometheus/rules.yaml, the alert rules for Prometheus; it does not read them.

`build.py render rules` prints that file, and kubernetes/monitoring.py puts it into an object of Kubernetes.
"""

from __future__ import annotations

from pathlib import Path

from cellblock import paths

NAME = "cellblock-rules.yaml"


def rules_file() -> Path:
    """The file of rules."""
    return paths.PROJECT / "deploy" / "prometheus" / "rules.yaml"
