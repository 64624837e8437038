# SPDX-License-Identifier: Apache-2.0
"""Ways out that need jobs of their own: options of Slurm's commands, libraries, other commands of Slurm.

Each returns how it ended, from what is seen on the worker or in the job's output.
"""
