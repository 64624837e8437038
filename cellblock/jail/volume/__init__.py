# SPDX-License-Identifier: Apache-2.0
"""Keeps a jail volume on disk: its records, writer lock, history, shards, and its filesystem's limits."""
