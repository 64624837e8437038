# SPDX-License-Identifier: Apache-2.0
"""Backups of the jail volume, stored by restic.

`backup` makes a snapshot. `restore` restores one, all of it or one path. `reconcile` compares the restored
tree with the tree that was backed up, and repairs what restic loses.
"""
