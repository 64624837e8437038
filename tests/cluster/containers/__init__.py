# SPDX-License-Identifier: Apache-2.0
"""Tests the containers of a cluster: their specifications, entrypoints and cgroups, and the engine."""
