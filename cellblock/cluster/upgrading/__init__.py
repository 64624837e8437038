# SPDX-License-Identifier: Apache-2.0
"""Upgrades a running cluster to a newer release of Slurm, and goes back to the old one if asked."""
