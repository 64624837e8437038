# SPDX-License-Identifier: Apache-2.0
"""Tests the cluster file and what is written from it: Slurm's configuration, secrets and keys."""
