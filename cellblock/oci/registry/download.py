# SPDX-License-Identifier: Apache-2.0
"""Fetches one blob over connections that may break, and verifies its digest while it comes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from urllib3 import exceptions
from urllib3.response import BaseHTTPResponse

from cellblock.oci.model import Descriptor
from cellblock.oci.registry.client import Repository
from cellblock.oci.registry.errors import ConnectionLost, WrongDigest
from cellblock.oci.registry.transport import Stopped
from cellblock.retries import count_anew

_CHUNK = 256 * 1024


def blob_chunks(repository: Repository, blob: Descriptor) -> Iterator[bytes]:
    """The blob's bytes in order, from one request or, after breaks, several.

    The digest is known after the last chunk: what was made of them holds only when the iteration ends without
    WrongDigest. Raises RegistryError.
    """
    digest, got = hashlib.sha256(), 0
    for attempt in repository.registry.transport.retrying():
        with attempt:
            try:
                for data in _from(repository, blob, got):
                    digest.update(data)
                    got += len(data)
                    count_anew(attempt)
                    yield data
            except ConnectionLost:
                # A break after the last byte: registries answer 416 to a request for the rest, which is none.
                if got < blob.size:
                    raise
            if got < blob.size:
                # A proxy that dies can end an answer without a sign of it.
                raise ConnectionLost(
                    f"{repository.registry.host}: blob {blob.digest[7:19]} of {repository.path} ended after "
                    f"{got} of {blob.size} bytes",
                    hint="run this again; when it stays so, the registry's copy is damaged: push it again",
                )
    found = f"sha256:{digest.hexdigest()}"
    if found != blob.digest:
        raise WrongDigest(
            f"{repository.registry.host}: blob {blob.digest} of {repository.path} came with digest {found}",
            hint="run this again; when it stays so, the registry's copy is damaged: push that image again",
        )


def _from(repository: Repository, blob: Descriptor, offset: int) -> Iterator[bytes]:
    """What one answer gives of the blob after `offset`."""
    with repository.open_blob(blob.digest, offset) as response:
        # 200 to a request with Range: the registry cannot, and sends all of it.
        skip = offset if response.status != 206 else 0
        position = offset - skip
        for data in _read(repository, blob, response):
            useful = data[max(0, offset - position) :] if position < offset else data
            position += len(data)
            if position > blob.size:
                raise WrongDigest(
                    f"{repository.registry.host}: blob {blob.digest} of {repository.path} is longer than the "
                    f"{blob.size} bytes that its manifest says",
                    hint="the registry's copy is damaged, or an attack: push that image again",
                )
            if useful:
                yield useful


def _read(repository: Repository, blob: Descriptor, response: BaseHTTPResponse) -> Iterator[bytes]:
    transport = repository.registry.transport
    while True:
        if transport.stopped.is_set():
            raise Stopped(f"{transport.host}: stopped, because another part failed")
        try:
            data = response.read(_CHUNK)
        except (exceptions.HTTPError, OSError) as error:
            raise ConnectionLost(
                f"{transport.host}: could not fetch blob {blob.digest[7:19]} of {repository.path}: "
                "the connection broke",
                hint="run this again",
            ) from error
        if not data:
            return
        yield data
