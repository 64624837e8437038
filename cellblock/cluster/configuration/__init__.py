# SPDX-License-Identifier: Apache-2.0
"""Writes the configuration files and secrets that a cluster's containers mount."""
