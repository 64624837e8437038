# SPDX-License-Identifier: Apache-2.0
"""Attests and signs images under the names that a push gives them in the registry.

attesting.py makes the documents; attest/signing.py makes a single signature.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cellblock.attest.artifacts import attach_signature
from cellblock.attest.signing import Signer
from cellblock.attest.subject import Subject
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.oci.cosign import cosign_tag
from cellblock.oci.layout import Layout
from cellblock.oci.model import DOCKER_LIST, INDEX, Descriptor, Platform
from cellblock.oci.push import Item, push
from cellblock.oci.registry.client import Registry
from cellblock.release.attesting import AttestRequest, attest_image, pulled_as


def attest_pushed(
    subjects: Sequence[Subject], root: Descriptor, request: AttestRequest, events: Events
) -> None:
    """Attach what `request` asks for to `subjects`, the images that `root` leads to; sign an index, too."""
    for subject in subjects:
        attest_image(subject, request, events)
    if request.signer is not None and root.media_type in (INDEX, DOCKER_LIST):
        first = subjects[0]
        references = pulled_as(request.repository, first.name, request.tags)
        platform = first.image.configuration.platform
        attach_signature(first.layout, root, platform, request.signer, references)


def sign_joined(
    registry: Registry, path: str, index: Descriptor, signer: Signer, reference: str, events: Events
) -> None:
    """Sign the index at `path` of a registry, which needs not be there yet, as `reference`, HOST/PATH:TAG."""
    with tempfile.TemporaryDirectory(prefix="cellblock-signature-") as folder:
        layout = Layout(Path(folder))
        signature = attach_signature(layout, index, Platform("linux", "amd64"), signer, [reference])
        tag = cosign_tag(signature, index.digest)
        item = Item(f"signature of {path}", signature, path, (tag,) if tag else ())
        push(layout, registry, [item], events, jobs=1)


def require_cosign() -> None:
    """Raise CellblockError when the program cosign is not installed: before a push, not after it."""
    if shutil.which("cosign") is None:
        raise CellblockError(
            "--keyless: the program cosign is not installed, and it alone speaks to Sigstore",
            hint="install cosign, or sign with --key",
        )


def sign_keyless(references: Sequence[str]) -> None:
    """Let the program cosign sign images, HOST/PATH@DIGEST, with the identity of the CI job (Sigstore).

    `require_cosign` says whether it is there. Raises CellblockError with what it says.
    """
    for reference in references:
        argv = ["cosign", "sign", "--yes", reference]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip()[-1000:]
            # Go's words for a host that has no address, or that cannot be reached.
            is_network = any(words in said for words in ("no such host", "dial tcp", "i/o timeout"))
            missing = (
                "it does not reach Sigstore: check the network and HTTPS_PROXY, or sign with --key"
                if is_network
                else "the job needs an identity: `id-token: write` on GitHub, SIGSTORE_ID_TOKEN on GitLab"
            )
            raise CellblockError(
                f"`{' '.join(argv)}` failed: {said}",
                hint=f"{missing}; the images are pushed, and not signed",
            )
