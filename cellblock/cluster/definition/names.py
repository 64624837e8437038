# SPDX-License-Identifier: Apache-2.0
"""Checks the names of clusters, writes them as the option --name, and has the host names of slurmctld."""

from __future__ import annotations

import re
from typing import Literal

from cellblock.errors import UsageError

# slurmctld accepts these, and they are part of container and network names.
_CLUSTER_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")

CONTROLLERS = ("controller", "controller-2")
"""Hosts of slurmctld, of which a cluster has the first or both."""
DEFAULT_NAME = "cellblock"
"""The cluster that commands mean when they are given no --name."""

JailRoot = Literal["nobody", "operator"]
"""What root in the jail is to Slurm: nobody, who submits no jobs, or operator, who can take over Slurm."""

Auth = Literal["munge", "slurm"]
"""What says to Slurm who asks: munge, or auth/slurm with sackd."""


def check_name(name: str) -> None:
    """Raise UsageError unless `name` can name a cluster."""
    if not _CLUSTER_NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' cannot name a cluster: lower-case letters, digits and '-', at most 40",
            hint="choose another name",
        )


def name_option(name: str) -> str:
    """What to append to a command of `build.py` so that it means cluster `name`: "" for the default one."""
    return "" if name == DEFAULT_NAME else f" --name {name}"
