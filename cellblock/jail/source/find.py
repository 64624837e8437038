# SPDX-License-Identifier: Apache-2.0
"""Finds the source that a user named, and gives the class that reads it.

    jail, localhost/cellblock/jail:debian13    an image that this checkout built
    localhost/IMAGE:TAG, containers-storage:IMAGE    an image in the storage of podman and buildah
    docker://HOST/PATH[:TAG][@DIGEST]    an image in a registry
    oci:DIR[:TAG]                        an OCI layout
    oci-archive:FILE[:TAG]               an OCI layout packed into a tar
    /PATH/x.tar[.gz|.zst|.xz|.bz2]       a tar
    /PATH, ./PATH, ../PATH               a root directory

Every source has two methods. `identify` says cheaply which one it is, so that a command can stop when there
is nothing to do. `feed` gives its bytes to the C code that reads them (`image_core`).
"""

from __future__ import annotations

import re
from pathlib import Path

from cellblock.errors import CellblockError, UsageError
from cellblock.jail.source.directory import DirectorySource
from cellblock.jail.source.identity import Source
from cellblock.jail.source.image import ImageSource
from cellblock.jail.source.layout import LayoutSource
from cellblock.jail.source.tar import TAR_NAME, TarSource

_OTHER_FORMS = re.compile(
    r"(https?://|docker-(archive|daemon):|dir:|file:|sif:|ostree:|registry:|docker:|oci/)"
)
"""What other tools name an image by, and what people write for `docker://`."""

_FORMS = (
    "write docker://HOST/PATH[:TAG] (a registry), oci:DIR[:TAG], oci-archive:FILE[:TAG], the name of an "
    "image that this checkout built (jail), containers-storage:IMAGE (podman's), or a tar or a directory "
    "(/PATH or ./PATH)"
)


def find_source(text: str) -> Source:
    """The source that `text` names. Raises UsageError: it names none; CellblockError: it is not there."""
    if not text:
        raise UsageError("no source is named", hint=_FORMS)
    if text.startswith("oci:"):
        folder, _, tag = _named(text).partition(":")
        return LayoutSource(text, Path(folder), tag)
    if text.startswith("oci-archive:"):
        from cellblock.jail.source.archive import ArchiveSource

        file, _, tag = _named(text).partition(":")
        return ArchiveSource(text, Path(file), tag)
    if text.startswith("docker://"):
        from cellblock.jail.source.registry import RegistrySource

        return RegistrySource(text)
    if text.startswith("containers-storage:"):
        return ImageSource(_named(text))
    if text.startswith("localhost/cellblock/"):
        try:
            from cellblock.jail.source.store import StoreSource
        except ModuleNotFoundError as error:  # the package in the image jail-init builds nothing
            raise CellblockError(
                f"nothing is built here, so there is no {text}",
                hint="push it, and name docker://HOST/PATH:TAG",
            ) from error
        return StoreSource(text)
    if _OTHER_FORMS.match(text):
        raise UsageError(f"'{text}' is no form of a source", hint=_FORMS)
    path = Path(text).expanduser()
    is_path = text.startswith(("/", "./", "../", "~")) or text in (".", "..")
    if not is_path and not (TAR_NAME.search(text) and path.is_file()):
        return ImageSource(text)
    if not path.exists():
        raise CellblockError(f"there is no {path} to assemble from", hint="name a tar or a directory")
    if (path / "oci-layout").exists():
        raise CellblockError(f"{path} is an OCI layout", hint=f"say so: oci:{path}")
    if path.is_dir():
        return DirectorySource(text, path)
    if not path.is_file():
        # It is read twice, to hash and to unpack: a pipe has nothing the second time, /dev/zero no end.
        raise CellblockError(
            f"{path} is neither a file nor a directory", hint="write what it gives to a file first"
        )
    return TarSource(text, path)


def _named(text: str) -> str:
    """Return the text after the first colon. Raises UsageError if it is empty."""
    found = text.partition(":")[2]
    if found.partition(":")[0]:
        return found
    raise UsageError(f"'{text}' names no {'file' if 'archive' in text else 'directory'}", hint=_FORMS)
