# SPDX-License-Identifier: Apache-2.0
"""Attestations of a built image: their documents, and signatures that openssl verifies."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from cellblock.attest.provenance import BUILDER, clean_commit, provenance
from cellblock.attest.signing import (
    PemSigner,
    envelope,
    load_signer,
    pre_authentication_encoding,
    simple_signing,
)
from cellblock.attest.subject import Subject
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Event, Events, Message
from cellblock.lock.model import LockedImage
from cellblock.oci.cosign import ATTESTATION_TYPE, SIGNATURE_TYPE, cosign_tag
from cellblock.oci.model import Manifest
from cellblock.release.attesting import AttestRequest, attest_image
from cellblock.store.record import ImageRecord, write_record
from tests.attest.test_audit import lock


def run(*argv: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([str(each) for each in argv], input=stdin, capture_output=True, check=False)


@dataclass(frozen=True)
class KeyPair:
    """Made by openssl."""

    private: Path
    public: Path

    def verifies(self, data: bytes, signature: bytes, scratch: Path) -> bool:
        """Whether openssl finds the signature right: nothing of ours has a part in it."""
        (scratch / "data").write_bytes(data)
        (scratch / "signature").write_bytes(signature)
        verify = ("openssl", "dgst", "-sha256", "-verify", self.public)
        return run(*verify, "-signature", scratch / "signature", scratch / "data").returncode == 0


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    folder = tmp_path_factory.mktemp("keys")
    pair = KeyPair(folder / "key.pem", folder / "key.pub")
    run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", pair.private)
    run("openssl", "ec", "-in", pair.private, "-pubout", "-out", pair.public)
    return pair


@pytest.fixture
def recorded(billed: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Subject:
    """`billed`, as an image that this machine built from a lock that it still has."""
    monkeypatch.setenv("CELLBLOCK_CACHE", str(tmp_path / "cache"))
    record = ImageRecord(
        "worker",
        "v1",
        billed.reference,
        billed.image.digest,
        "k" * 64,
        {"images/worker": "a" * 64},
        (),
        "",
        7,
    )
    write_record(replace(record, commit="c" * 40))
    return billed


def blobs(subject: Subject, artifact_type: str) -> list[tuple[dict[str, str], bytes]]:
    """Annotations and bytes of the layers of the one artifact of a type that refers to the image."""
    (descriptor,) = subject.layout.referrers(subject.image.digest, artifact_type)
    manifest = Manifest.of_bytes(subject.layout.read(descriptor.digest))
    assert manifest.subject is not None
    assert manifest.subject.digest == subject.image.digest
    return [(dict(layer.annotations), subject.layout.read(layer.digest)) for layer in manifest.layers]


# -- provenance ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Facts:
    key: str = "k"
    inputs: dict[str, str] = field(default_factory=lambda: {"images/worker": "a", "package munge": "0.5 0"})
    lock: str = "l"
    epoch: int = 7


def test_provenance_names_what_went_in_and_what_came_out(billed: Subject) -> None:
    known = lock(("munge", "0.5.16-1", "Debian trixie/main"), ("gcc", "14", "Debian trixie/main"))
    packages = {
        "munge": replace(known.packages["munge"], images=("worker",)),
        "gcc": replace(known.packages["gcc"], images=("toolchain",)),
    }
    known = replace(
        known,
        packages=packages,
        tarballs={"https://a.example/slurm.tar": "d" * 64},
        images={"worker": LockedImage("worker", None, ("munge",), ("munge",))},
    )

    said: dict[str, Any] = json.loads(provenance(billed, Facts(), known, commit="c" * 40))
    definition = said["predicate"]["buildDefinition"]
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    assert said["predicateType"] == "https://slsa.dev/provenance/v1"
    assert said["subject"] == [
        {"name": billed.reference, "digest": {"sha256": billed.image.digest.removeprefix("sha256:")}}
    ]
    assert definition["externalParameters"] == {
        "image": "worker",
        "variant": "v1",
        "definitions": {"gitCommit": "c" * 40, "inputs": {"images/worker": "a"}},
    }
    assert definition["resolvedDependencies"] == [
        {"name": "definitions", "digest": {"gitCommit": "c" * 40}},
        {"uri": "https://a.example/slurm.tar", "digest": {"sha256": "d" * 64}},
        {
            "uri": "pkg:deb/debian/munge@0.5.16-1?arch=amd64",
            "name": "munge_0.5.16-1_amd64.deb",
            "digest": {"sha256": "0" * 64},
        },
    ]
    assert said["predicate"]["runDetails"]["builder"]["id"] == BUILDER
    compiled = json.loads(provenance(billed, Facts(), known, needs=["toolchain"]))
    names = [each.get("name") for each in compiled["predicate"]["buildDefinition"]["resolvedDependencies"]]
    assert "gcc_14_amd64.deb" in names


def test_only_a_clean_tree_has_a_commit(tmp_path: Path) -> None:
    git = ("git", "-C", tmp_path, "-c", "user.name=x", "-c", "user.email=x@y.example")
    assert clean_commit(tmp_path) is None
    run(*git, "init", "-q")
    (tmp_path / "file").write_text("1")
    run(*git, "add", "file")
    run(*git, "commit", "-qm", "x")
    assert clean_commit(tmp_path) == run(*git, "rev-parse", "HEAD").stdout.decode().strip()
    (tmp_path / "file").write_text("2")
    assert clean_commit(tmp_path) is None


# -- attaching -------------------------------------------------------------------------------------


def test_documents_are_attached_to_their_image(recorded: Subject) -> None:
    attested = attest_image(recorded, AttestRequest(), Events())
    assert [each.artifact_type for each in attested.artifacts] == [
        "application/spdx+json",
        "application/vnd.cyclonedx+json",
        "application/vnd.in-toto+json",
    ]
    ((annotations, data),) = blobs(recorded, "application/vnd.in-toto+json")
    assert annotations["org.opencontainers.image.title"] == "worker.provenance.json"
    assert json.loads(data)["predicate"]["buildDefinition"]["externalParameters"]["definitions"]["gitCommit"]
    created = json.loads(blobs(recorded, "application/spdx+json")[0][1])["creationInfo"]["created"]
    assert created == "1970-01-01T00:00:07Z"


def test_attesting_again_changes_nothing_and_leaves_one_of_each(recorded: Subject, keys: KeyPair) -> None:
    request = AttestRequest(load_signer(str(keys.private)))
    first = attest_image(recorded, request, Events()).artifacts
    assert attest_image(recorded, request, Events()).artifacts == first
    changed = attest_image(recorded, replace(request, builder="https://ci.example/1"), Events()).artifacts
    assert {each.digest for each in changed} != {each.digest for each in first}
    assert len(recorded.layout.referrers(recorded.image.digest)) == 5


def test_an_attested_image_goes_with_all_that_was_said_of_it(recorded: Subject, keys: KeyPair) -> None:
    attest_image(recorded, AttestRequest(load_signer(str(keys.private))), Events())
    recorded.layout.untag([recorded.reference])
    recorded.layout.collect_garbage()
    recorded.layout.collect_garbage()
    assert list((recorded.layout.folder / "blobs" / "sha256").iterdir()) == []


def test_without_a_record_of_the_build_there_is_no_provenance(
    billed: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELLBLOCK_CACHE", str(tmp_path / "cache"))
    events, seen = Events(), list[Event]()
    events.subscribe(seen.append)
    attested = attest_image(billed, AttestRequest(), events)
    assert [document.title for document in attested.documents] == ["spdx.json", "cdx.json"]
    assert any(isinstance(event, Message) and "no provenance" in event.text for event in seen)


def test_the_lock_of_a_build_is_found_by_its_digest(recorded: Subject, tmp_path: Path) -> None:
    from cellblock.lock.file import write_lock
    from cellblock.release.locks import lock_of

    known = lock(("munge", "0.5.16-1", "Debian trixie/main"))
    for name, each in (("v1-a", known), ("v1-b", lock(("munge", "1", "Debian trixie/main")))):
        write_lock(each, tmp_path / "cache" / "resolved" / f"{name}.lock.yaml")
    assert lock_of(recorded) is None
    record = ImageRecord(
        "worker", "v1", recorded.reference, recorded.image.digest, "k", {}, (), known.packages_digest, 7
    )
    write_record(replace(record, lock=known.packages_digest))
    found = lock_of(recorded)
    assert found is not None
    assert found.packages["munge"].version == "0.5.16-1"


# -- signatures ------------------------------------------------------------------------------------


def test_openssl_verifies_an_images_signature(recorded: Subject, keys: KeyPair, tmp_path: Path) -> None:
    attest_image(recorded, AttestRequest(load_signer(str(keys.private))), Events())
    ((annotations, payload),) = blobs(recorded, SIGNATURE_TYPE)
    said = json.loads(payload)["critical"]
    assert said["image"] == {"docker-manifest-digest": recorded.image.digest}
    assert said["type"] == "cosign container image signature"
    signature = base64.b64decode(annotations["dev.cosignproject.cosign/signature"])
    assert keys.verifies(payload, signature, tmp_path)
    assert not keys.verifies(payload + b" ", signature, tmp_path)


def test_envelopes_of_attestations_are_verified_by_others(
    recorded: Subject, keys: KeyPair, tmp_path: Path
) -> None:
    from securesystemslib.dsse import Envelope

    attest_image(recorded, AttestRequest(load_signer(str(keys.private))), Events())
    layers = blobs(recorded, ATTESTATION_TYPE)
    assert [notes["predicateType"] for notes, _ in layers] == [
        "https://spdx.dev/Document",
        "https://cyclonedx.org/bom",
        "https://slsa.dev/provenance/v1",
    ]
    for notes, data in layers:
        parsed = json.loads(data)
        read = Envelope(base64.b64decode(parsed["payload"]), parsed["payloadType"], {})
        assert json.loads(read.payload)["predicateType"] == notes["predicateType"]
        signature = base64.b64decode(parsed["signatures"][0]["sig"])
        assert keys.verifies(read.pae(), signature, tmp_path)


def test_a_signature_stands_where_cosign_looks_for_it(recorded: Subject, keys: KeyPair) -> None:
    attested = attest_image(recorded, AttestRequest(load_signer(str(keys.private))), Events())
    digest = recorded.image.digest
    assert [cosign_tag(each, digest) for each in attested.artifacts[-2:]] == [
        f"{digest.replace(':', '-')}.sig",
        f"{digest.replace(':', '-')}.att",
    ]
    assert cosign_tag(attested.artifacts[0], digest) is None
    # cosign reads the manifest as an image's: a configuration with a diff id for each layer.
    manifest = Manifest.of_bytes(recorded.layout.read(attested.artifacts[-1].digest))
    configuration = json.loads(recorded.layout.read(manifest.config.digest))
    assert configuration["rootfs"]["diff_ids"] == [layer.digest for layer in manifest.layers]


def test_what_dsse_signs_is_its_own_example() -> None:
    assert pre_authentication_encoding("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_an_encrypted_key_needs_its_password(
    keys: KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "encrypted.pem"
    run("openssl", "pkcs8", "-topk8", "-in", keys.private, "-out", path, "-passout", "pass:right")
    monkeypatch.setenv("COSIGN_PASSWORD", "right")
    assert keys.verifies(b"x", load_signer(str(path)).sign(b"x"), tmp_path)
    for password in ("wrong", None):
        monkeypatch.delenv("COSIGN_PASSWORD")
        if password:
            monkeypatch.setenv("COSIGN_PASSWORD", password)
        with pytest.raises(UsageError, match=r"no private key that can be read(.|\n)*COSIGN_PASSWORD"):
            load_signer(str(path))
        monkeypatch.setenv("COSIGN_PASSWORD", "")


def test_a_key_that_cannot_sign_for_cosign_is_refused(keys: KeyPair, tmp_path: Path) -> None:
    run("openssl", "genpkey", "-algorithm", "ed25519", "-out", tmp_path / "ed25519.pem")
    run("openssl", "ecparam", "-name", "secp384r1", "-genkey", "-noout", "-out", tmp_path / "p384.pem")
    for name in ("ed25519.pem", "p384.pem"):
        with pytest.raises(UsageError, match="ECDSA over P-256"):
            load_signer(str(tmp_path / name))
    with pytest.raises(UsageError, match="no private key"):
        load_signer(str(keys.public))
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        load_signer(str(tmp_path / "absent"))


def test_a_key_of_cosign_needs_cosign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    key = tmp_path / "cosign.key"
    key.write_text("-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n")
    for each in (str(key), "awskms:///alias/key"):
        with pytest.raises(UsageError, match="only the program cosign can use"):
            load_signer(each)


def test_cosign_signs_with_its_own_keys(
    keys: KeyPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for the program, which no distribution here carries: it signs what comes on its stdin."""
    program = tmp_path / "cosign"
    program.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/argv\n'
        f'[ "$6" = - ] || {{ echo "no key" >&2; exit 1; }}\n'
        f"openssl dgst -sha256 -sign {keys.private} | base64 -w0\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    signer = load_signer("awskms:///alias/key")
    assert keys.verifies(b"data", signer.sign(b"data"), tmp_path)
    argv = (tmp_path / "argv").read_text().split()
    assert argv == ["sign-blob", "--yes", "--tlog-upload=false", "--key", "awskms:///alias/key", "-"]
    program.write_text("#!/bin/sh\necho 'no such key' >&2\nexit 1\n")
    with pytest.raises(CellblockError, match="no such key"):
        signer.sign(b"data")


def test_signing_twice_gives_one_signature(keys: KeyPair) -> None:
    signer = load_signer(str(keys.private))
    assert isinstance(signer, PemSigner)
    assert envelope("x", b"y", signer) == envelope("x", b"y", signer)
    assert signer.sign(simple_signing("a", "b")) == signer.sign(simple_signing("a", "b"))
