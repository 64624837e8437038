# SPDX-License-Identifier: Apache-2.0
"""Attacks from the jail by jobs: options of Slurm's commands, libraries, messages to Slurm's daemons.

Each function returns how the attack ended, as seen on the worker or in the job's output.
"""
