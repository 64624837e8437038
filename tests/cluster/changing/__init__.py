# SPDX-License-Identifier: Apache-2.0
"""Tests what changes a cluster: up, down, upgrade, rotation of secrets, and what becomes of its jobs."""
