# SPDX-License-Identifier: Apache-2.0
"""A jail volume on disk: its records, writer lock, history and shards, and what its filesystem can hold."""
