# SPDX-License-Identifier: Apache-2.0
"""Reads an image in a registry, as a source of find.py: layers go into the tree and are never stored."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.jail.source.identity import SourceIdentity, from_labels
from cellblock.jail.source.image_core import LayerBytes
from cellblock.jail.source.registry_access import CA, PLAIN_HTTP
from cellblock.jail.source.stream import SourceStream, piped
from cellblock.oci.layout_reader import ARCHITECTURES
from cellblock.oci.model import DOCKER_LIST, INDEX, Configuration, Descriptor, Index, Manifest
from cellblock.oci.registry import ConnectionOptions, Reference, Registry, Repository
from cellblock.oci.registry.download import blob_chunks


def _connection() -> ConnectionOptions:
    ca = os.environ.get(CA)
    if ca and not Path(ca).is_file():
        raise CellblockError(
            f"{ca}: there is no such file of certificate authorities", hint=f"see --ca, and {CA}"
        )
    return ConnectionOptions(plain_http=bool(os.environ.get(PLAIN_HTTP)), ca=Path(ca) if ca else None)


@dataclass(frozen=True)
class RegistrySource:
    """`docker://HOST/PATH[:TAG][@DIGEST]`."""

    reference: str

    def identify(self, known: SourceIdentity | None) -> SourceIdentity:
        """Fetch the manifest and the configuration; no layer."""
        repository, manifest = self._manifest()
        data = b"".join(blob_chunks(repository, manifest.config))
        labels = Configuration.of_bytes(data).settings.get("Labels") or {}
        return from_labels("registry", self.reference, manifest.config.digest, labels)

    @contextmanager
    def feed(self, note: Path) -> Iterator[SourceStream]:
        """Give each layer by a connection of its own, opened when the layer is needed."""
        repository, manifest = self._manifest()
        stream = SourceStream(total=sum(layer.size for layer in manifest.layers))
        stream.needs = stream.total
        stream.layers = [self._layer(stream, repository, layer) for layer in manifest.layers]
        yield stream

    def _layer(self, stream: SourceStream, repository: Repository, layer: Descriptor) -> LayerBytes:
        name = f"{self.reference}: layer {layer.digest}"
        digest = layer.digest.removeprefix("sha256:")
        return LayerBytes(name, digest, piped(stream, lambda: blob_chunks(repository, layer)))

    def _manifest(self) -> tuple[Repository, Manifest]:
        reference = Reference.parse(self.reference)
        repository = Registry(reference.host, _connection()).repository(reference.path)
        found = repository.manifest(reference.within)
        if found.descriptor.media_type in (INDEX, DOCKER_LIST):
            machine = ARCHITECTURES.get(platform.machine(), platform.machine())
            for one in Index.of_bytes(found.data).manifests:
                if one.platform and (one.platform.os, one.platform.architecture) == ("linux", machine):
                    found = repository.manifest(one.digest)
                    break
            else:
                raise CellblockError(
                    f"{self.reference} has no image for linux/{machine}",
                    hint=f"push the image of {machine}, or run this on a machine of another architecture",
                )
        return repository, Manifest.of_bytes(found.data)
