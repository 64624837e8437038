# SPDX-License-Identifier: Apache-2.0
"""Signatures and attestations of pushed images, checked by cosign, and by skopeo with a policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock.attest.artifacts import Document, attach_documents, attach_signatures
from cellblock.attest.signing import load_signer
from cellblock.attest.subject import Subject
from cellblock.oci.layout import Layout
from cellblock.oci.model import canonical
from tests.integration.push.pushing import add, content, image, send
from tests.integration.push.verifiers import Cosign, Skopeo, make_key
from tests.integration.registry import RunningRegistry

PREDICATE = "https://slsa.dev/provenance/v1"


@pytest.fixture
def signed(layout: Layout, registry: RunningRegistry, path: str, tmp_path: Path) -> Path:
    """The public key of an image that was signed, with a statement about it, and pushed."""
    private, public = make_key(tmp_path, "ours")
    add(layout, "a", content(path))
    stored = layout.image("a")
    subject = Subject("a", "t", f"{registry.host}/{path}:t", layout, stored)
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "a", "digest": {"sha256": stored.digest.removeprefix("sha256:")}}],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {"buildType": "urn:test"},
            "runDetails": {"builder": {"id": "urn:me"}},
        },
    }
    data = canonical(statement)
    documents = [Document("provenance.json", "application/vnd.in-toto+json", PREDICATE, data, data)]
    attach_documents(subject, documents)
    attach_signatures(
        subject,
        documents,
        load_signer(str(private)),
        [f"{registry.host}/{path}:t", f"{registry.host}/{path}:u"],
    )
    send(layout, registry.host, image("a", stored.descriptor, path, "t", "u", "v"))
    return public


def test_cosign_verifies_an_image_that_was_signed_without_it(
    cosign: Cosign, signed: Path, registry: RunningRegistry, path: str, tmp_path: Path
) -> None:
    done = cosign.run(tmp_path, "verify", signed, f"{registry.host}/{path}:t")
    assert done.returncode == 0, done.stderr
    assert "signatures were verified against the specified public key" in done.stderr


def test_cosign_verifies_what_is_said_of_the_image(
    cosign: Cosign, signed: Path, registry: RunningRegistry, path: str, tmp_path: Path
) -> None:
    more = ("--type", "slsaprovenance1", f"{registry.host}/{path}:t")
    done = cosign.run(tmp_path, "verify-attestation", signed, *more)
    assert done.returncode == 0, done.stderr
    assert "signatures were verified against the specified public key" in done.stderr


@pytest.mark.parametrize("command", ["verify", "verify-attestation"])
def test_cosign_refuses_another_key(
    cosign: Cosign, signed: Path, registry: RunningRegistry, path: str, tmp_path: Path, command: str
) -> None:
    _, other = make_key(tmp_path, "other")
    more = ["--type", "slsaprovenance1"] if command == "verify-attestation" else []
    done = cosign.run(tmp_path, command, other, *more, f"{registry.host}/{path}:t")
    assert done.returncode != 0
    assert "no matching" in done.stderr


def test_a_policy_takes_what_is_signed_for_the_name_that_is_pulled(
    skopeo: Skopeo, signed: Path, registry: RunningRegistry, path: str, layout: Layout, tmp_path: Path
) -> None:
    digest = layout.image("a").digest
    for number, reference in enumerate((f"{path}:t", f"{path}:u", f"{path}@{digest}")):
        done = skopeo.pull(f"{registry.host}/{reference}", signed, tmp_path / str(number))
        assert done.returncode == 0, done.stderr
    # It is the same image, and nobody signed it by that name.
    refused = skopeo.pull(f"{registry.host}/{path}:v", signed, tmp_path / "v")
    assert refused.returncode != 0
    assert "is not accepted" in refused.stderr
    _, other = make_key(tmp_path, "other")
    assert skopeo.pull(f"{registry.host}/{path}:t", other, tmp_path / "key").returncode != 0
