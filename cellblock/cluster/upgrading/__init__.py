# SPDX-License-Identifier: Apache-2.0
"""Upgrades a cluster that runs to a newer release of Slurm, and takes it back."""
