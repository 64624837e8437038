# SPDX-License-Identifier: Apache-2.0
"""Writes the provenance of an image, where it came from: SLSA v1 in an in-toto statement v1, in JSON.

It names what went into a build and what came out, and no times, so that the same build gives the same
statement. docs/attest.md documents this build type.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from cellblock.attest.bill import TOOL, TOOL_VERSION
from cellblock.attest.subject import Subject
from cellblock.lock.model import Lock
from cellblock.oci.model import canonical

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
MEDIA_TYPE = "application/vnd.in-toto+json"
BUILD_TYPE = "urn:cellblock:build-type:image:v1"
BUILDER = "urn:cellblock:builder:build.py"
"""Who built when nobody says otherwise: a CI names its own, by which others decide whom to trust."""


class BuildFacts(Protocol):
    """What a build remembers of an image (cellblock.store.record.ImageRecord)."""

    @property
    def key(self) -> str:
        """Its cache key."""

    @property
    def inputs(self) -> Mapping[str, str]:
        """Digests that its key is made of, by name."""

    @property
    def lock(self) -> str:
        """Digest of the lock."""

    @property
    def epoch(self) -> int:
        """SOURCE_DATE_EPOCH."""


def provenance(
    subject: Subject,
    facts: BuildFacts,
    lock: Lock | None = None,
    *,
    needs: Collection[str] = (),
    commit: str | None = None,
    builder: str = BUILDER,
) -> bytes:
    """The statement. `needs` are the images that went into this one: their packages are listed too.

    `commit` is the definitions' git commit, when nothing but it was built.
    """
    # Packages are among the resolved dependencies, where others look for them.
    inputs = {name: each for name, each in facts.inputs.items() if not name.startswith("package ")}
    definitions: dict[str, Any] = {"inputs": inputs}
    if commit:
        definitions["gitCommit"] = commit
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {
                "image": subject.name,
                "variant": subject.variant,
                "definitions": definitions,
            },
            "internalParameters": {
                "key": facts.key,
                "lock": facts.lock,
                "SOURCE_DATE_EPOCH": facts.epoch,
            },
            "resolvedDependencies": list(_dependencies(subject, lock, needs, commit)),
        },
        "runDetails": {
            "builder": {"id": builder, "version": {TOOL: TOOL_VERSION}},
            "metadata": {"invocationId": facts.key},
        },
    }
    return statement(subject, PREDICATE_TYPE, predicate)


def statement(subject: Subject, predicate_type: str, predicate: Any) -> bytes:
    """An in-toto statement v1 about an image."""
    digest = subject.image.digest.removeprefix("sha256:")
    return canonical(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": subject.reference, "digest": {"sha256": digest}}],
            "predicateType": predicate_type,
            "predicate": predicate,
        }
    )


def clean_commit(project: Path) -> str | None:
    """The commit that is checked out at `project`, when nothing there differs from it."""
    git = ["git", "-C", str(project)]
    try:
        status = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None  # no git, or no repository: an unpacked archive builds as well
    return None if status.stdout.strip() else head.stdout.strip()


def _dependencies(
    subject: Subject, lock: Lock | None, needs: Collection[str], commit: str | None
) -> Iterator[dict[str, Any]]:
    """Resource descriptors (in-toto attestation framework v1), in an order of their own."""
    from packageurl import PackageURL

    if commit:
        yield {"name": "definitions", "digest": {"gitCommit": commit}}
    if lock is None:
        return
    for url, sha256 in sorted(lock.tarballs.items()):
        yield {"uri": url, "digest": {"sha256": sha256}}
    images = {subject.name, *needs}
    for package in sorted(lock.packages.values(), key=lambda each: each.name):
        if images.isdisjoint(package.images):
            continue
        namespace = package.origin.split(" ")[0].lower()
        purl = PackageURL("deb", namespace, package.name, package.version, {"arch": package.architecture})
        yield {"uri": purl.to_string(), "name": package.deb, "digest": {"sha256": package.sha256}}
