# SPDX-License-Identifier: Apache-2.0
"""File trees: entries, the manifest that records a tree, and safe reading of a tree that users change."""
