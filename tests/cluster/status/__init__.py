# SPDX-License-Identifier: Apache-2.0
"""Tests what is known of a cluster: its state, status, logs and the proof."""
