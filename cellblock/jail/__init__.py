# SPDX-License-Identifier: Apache-2.0
"""The jail volume: one directory tree on a shared volume that every job sees as `/`.

    tree/      entries, manifests, and safe reading of a tree that users change at the same time
    source/    where a jail's files come from: images, OCI layouts, tars, directories
    merge/     the three-way merge of an upgrade or rollback, which makes an upgrade plan
    volume/    a volume on disk: records, writer lock, history, shards
    apply/     carries an upgrade plan out, so that a crash leaves a tree that can be finished
    *.py       the commands: assemble, upgrade, rollback, verify, changes (`jail diff`), initialise
    backup/    backups by restic

A folder imports only those listed above it; tests/lint/test_folder_order.py checks that.
"""
