# SPDX-License-Identifier: Apache-2.0
"""Cellblock: container images and a shared root filesystem (the jail) for Slurm clusters."""

__version__ = "0.1.0"
