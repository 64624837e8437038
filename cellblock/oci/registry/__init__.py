# SPDX-License-Identifier: Apache-2.0
"""Talks to registries, by OCI distribution-spec 1.1 and by docker's registry API before it.

    registry = Registry("registry.example:5000")
    repository = registry.repository("slurm/worker")

`client` has the requests of the specification, `upload` and `download` carry blobs over connections that
break, `transport` retries, `authorization` and `credentials` say who asks. Nothing here knows of
Cellblock's images: the builder's cache, `build.py push` and the sources of a jail use it alike.
"""

from cellblock.oci.registry.client import Registry, RemoteManifest, Repository
from cellblock.oci.registry.connection import ConnectionOptions
from cellblock.oci.registry.errors import (
    CredentialsMissing,
    Denied,
    NotInRegistry,
    RateLimited,
    RegistryError,
    RegistryFull,
    RegistryUnreachable,
    WrongDigest,
)
from cellblock.oci.registry.reference import Reference

__all__ = [
    "ConnectionOptions",
    "CredentialsMissing",
    "Denied",
    "NotInRegistry",
    "RateLimited",
    "Reference",
    "Registry",
    "RegistryError",
    "RegistryFull",
    "RegistryUnreachable",
    "RemoteManifest",
    "Repository",
    "WrongDigest",
]
