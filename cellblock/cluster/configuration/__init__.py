# SPDX-License-Identifier: Apache-2.0
"""The files and secrets that a cluster's containers get, and the trial of a new slurm.conf."""
