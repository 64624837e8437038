# SPDX-License-Identifier: Apache-2.0
"""Replaces the secrets of a running cluster (`build.py cluster rotate`).

rotation.py has the command, steps.py a step for each secret, and slurm_auth_key.py the longest of them.
"""
