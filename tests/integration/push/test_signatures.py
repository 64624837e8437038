"""Signatures and attestations of pushed images, verified by the program cosign."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cellblock.attest.artifacts import Document, attach_documents, attach_signatures
from cellblock.attest.signing import load_signer
from cellblock.attest.subject import Subject
from cellblock.build.mirrors import archive
from cellblock.host import host_release
from cellblock.oci.layout import Layout
from cellblock.oci.model import canonical
from cellblock.paths import PROJECT
from cellblock.variants import load_variants
from tests.integration.archive import private_apt
from tests.integration.push.pushing import add, content, image, send
from tests.integration.registry import RunningRegistry

pytestmark = pytest.mark.skipif(
    host_release().get("ID") != "debian", reason="cosign is fetched from this machine's own mirror of Debian"
)
PREDICATE = "https://slsa.dev/provenance/v1"


@pytest.fixture(scope="module")
def cosign(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program, of Debian 14, the first release that has it; it needs nothing but a C library."""
    folder = tmp_path_factory.mktemp("cosign")
    variant = load_variants(PROJECT / "images" / "variants.yaml")["debian14"]
    get = private_apt(folder / "apt", archive(variant).lines[:1], "Acquire::Check-Valid-Until=false")
    for command in ([*get, "update"], [*get, "download", "cosign"]):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (deb,) = folder.glob("cosign_*.deb")
    subprocess.run(["dpkg-deb", "--extract", deb, folder / "root"], check=True)
    return str(folder / "root/usr/bin/cosign")


def make_key(folder: Path, name: str) -> tuple[Path, Path]:
    """A private and a public key, by openssl, as docs/attest.md says."""
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    generate = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(private)]
    subprocess.run(generate, check=True, capture_output=True)
    derive = ["openssl", "ec", "-in", str(private), "-pubout", "-out", str(public)]
    subprocess.run(derive, check=True, capture_output=True)
    return private, public


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
    attach_signatures(subject, documents, load_signer(str(private)))
    send(layout, registry.host, image("a", stored.descriptor, path))
    return public


def run(cosign: str, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOME": str(home)}
    return subprocess.run([cosign, *arguments], capture_output=True, text=True, env=environment, check=False)


def of(command: str, key: Path, *more: str) -> list[str]:
    # No transparency log: see docs/decisions/attest-own-signatures.md.
    return [command, "--key", str(key), "--insecure-ignore-tlog", "--allow-http-registry", *more]


def test_cosign_verifies_an_image_that_was_signed_without_it(
    cosign: str, signed: Path, registry: RunningRegistry, path: str, tmp_path: Path
) -> None:
    done = run(cosign, tmp_path, *of("verify", signed, f"{registry.host}/{path}:t"))
    assert done.returncode == 0, done.stderr
    assert "signatures were verified against the specified public key" in done.stderr


def test_cosign_verifies_what_is_said_of_the_image(
    cosign: str, signed: Path, registry: RunningRegistry, path: str, tmp_path: Path
) -> None:
    arguments = of("verify-attestation", signed, "--type", "slsaprovenance1", f"{registry.host}/{path}:t")
    done = run(cosign, tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert "signatures were verified against the specified public key" in done.stderr


@pytest.mark.parametrize("command", ["verify", "verify-attestation"])
def test_cosign_refuses_another_key(
    cosign: str, signed: Path, registry: RunningRegistry, path: str, tmp_path: Path, command: str
) -> None:
    _, other = make_key(tmp_path, "other")
    more = ["--type", "slsaprovenance1"] if command == "verify-attestation" else []
    done = run(cosign, tmp_path, *of(command, other, *more, f"{registry.host}/{path}:t"))
    assert done.returncode != 0
    assert "no matching" in done.stderr
