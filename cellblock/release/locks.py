# SPDX-License-Identifier: Apache-2.0
"""Finds the lock that a built image's packages came from, by its digest, for audits and attestations."""

from __future__ import annotations

from pathlib import Path

from cellblock import paths
from cellblock.attest.subject import Subject
from cellblock.errors import DefinitionError
from cellblock.lock.file import read_lock
from cellblock.lock.model import Lock
from cellblock.overrides import LOCKS
from cellblock.store.record import ImageRecord, read_record


def record_of(subject: Subject) -> ImageRecord | None:
    """The record of exactly this image, by digest; None when this machine did not build it last."""
    record = read_record(subject.name, subject.variant)
    return record if record is not None and record.digest == subject.image.digest else None


def lock_of(subject: Subject) -> Lock | None:
    """The lock that an image was built from: the project's, or one of this machine's own.

    None when it is not there any more, or when nothing is known of the image's build.
    """
    record = record_of(subject)
    if record is None:
        return None
    # A site's locks lie beside its definitions.
    own = [Path(site) / LOCKS for site in record.sites[-1:]]
    pattern = f"{subject.variant}*.lock.yaml"
    for folder in (*own, paths.PROJECT / "locks", paths.cache() / "resolved"):
        for path in sorted(folder.glob(pattern)):
            try:
                lock = read_lock(path)
            except DefinitionError:
                continue  # of another format, or edited: `build --locked` says so
            if lock.packages_digest == record.lock:
                return lock
    return None
