# SPDX-License-Identifier: Apache-2.0
"""Backs up jail volumes by restic (`jail backup`, `jail restore`).

`backup` makes a snapshot. `restore` restores one, and `one_path` a path of it. `reconcile` compares the
restored tree with the tree that was backed up, and repairs what restic loses.
"""
