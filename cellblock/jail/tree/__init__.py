# SPDX-License-Identifier: Apache-2.0
"""Reads and compares file trees: entries, the manifest of a tree, and safe access while users change it."""
