# SPDX-License-Identifier: Apache-2.0
"""Fetches a release tarball of Slurm once, checks its SHA-256 each time, and reads which release it is."""

from __future__ import annotations

import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from cellblock.errors import CellblockError, DefinitionError
from cellblock.files.flock import locked
from cellblock.files.sha256 import sha256_of_file
from cellblock.packages.transfer import Broken, Missing, Refused, Transfers
from cellblock.retries import retrying
from cellblock.variants import SlurmSource

# Attempts at a URL that breaks off; each goes on where the one before ended.
_ATTEMPTS = 4


@dataclass(frozen=True)
class Release:
    """What a tarball says of itself in its file META.

    `library` is the number in the name of libslurm.so; `epoch` the time of META in seconds, which stands
    for that of the release.
    """

    version: str
    library: int
    epoch: int


def fetch(source: SlurmSource, folder: Path, where: str) -> Path:
    """The verified tarball, in `folder` or where `source` says it is.

    Raises CellblockError when it cannot be had or has another SHA-256 than `source` says; `where` names
    the variant in messages.
    """
    if "://" not in source.source:
        path = Path(source.source)
        if not path.is_file():
            raise CellblockError(
                f"{where}: {path}: there is no such file",
                hint="put the tarball there, or correct `source` in variants.yaml",
            )
        _compare(sha256_of_file(path), source, where)
        return path
    # A name of its own for each SHA-256: nobody has to ask what an old file holds.
    name = Path(urlsplit(source.source).path).name or "slurm.tar"
    path = folder / f"{source.sha256[:16]}-{name}"
    with locked(folder / "lock"):
        if not path.is_file() or sha256_of_file(path) != source.sha256:
            part = path.with_name(f"{path.name}.part")
            _download(source.source, part, where)
            found = sha256_of_file(part)
            if found != source.sha256:
                part.unlink()
            _compare(found, source, where)
            part.rename(path)
    return path


def read_release(path: Path, source: SlurmSource, where: str) -> Release:
    """What the tarball says of itself.

    Raises CellblockError when it is no release of Slurm, DefinitionError when it is another one than
    `source` says: plugins would be compiled for the wrong one.
    """
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile() and re.fullmatch(r"(\./)?[^/]+/META", member.name):
                    file = archive.extractfile(member)
                    text = file.read().decode(errors="replace") if file else ""
                    return _parse(text, int(member.mtime), path, source, where)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise CellblockError(
            f"{where}: {path} is no tarball: {error}", hint="fetch it again, and correct `sha256`"
        ) from error
    raise CellblockError(
        f"{where}: {path} is no release of Slurm: it holds no file META",
        hint="name a tarball as Slurm's authors publish it",
    )


def _parse(text: str, epoch: int, path: Path, source: SlurmSource, where: str) -> Release:
    fields = dict(re.findall(r"^\s*(\w+):\s*(\S+)", text, re.MULTILINE))
    try:
        version = fields["Version"]
        library = int(fields["API_CURRENT"]) - int(fields["API_AGE"])
    except (KeyError, ValueError) as error:
        raise CellblockError(
            f"{where}: {path} is no release of Slurm: its META has no {error}",
            hint="name a tarball as Slurm's authors publish it",
        ) from error
    if not version.startswith(f"{source.release}."):
        train = ".".join(version.split(".")[:2])
        raise DefinitionError(
            f"{where}: `release` is {source.release}, and {path.name} holds Slurm {version}",
            hint=f'write `release: "{train}"` in variants.yaml, or name another tarball',
        )
    return Release(version, library, epoch)


def _download(url: str, part: Path, where: str) -> None:
    transfers = Transfers(1)
    try:
        for attempt in retrying(Broken, _ATTEMPTS):
            with (
                attempt,
                part.open("ab") as file,
                transfers.read(quote(url, safe="/:?&=%@+"), file.tell()) as (start, chunks),
            ):
                file.truncate(start)
                for chunk in chunks:
                    file.write(chunk)
    except Broken as error:
        raise _unreachable(url, str(error), where) from error
    except (Missing, Refused) as error:
        part.unlink(missing_ok=True)
        raise _unreachable(url, str(error), where) from error
    finally:
        transfers.close()


def _unreachable(url: str, reason: str, where: str) -> CellblockError:
    # A URL may hold a password, and messages end up in logs.
    shown = re.sub(r"//[^/@]*@", "//", url)
    return CellblockError(
        f"{where}: {shown} cannot be fetched: {reason}",
        hint="correct `source` in variants.yaml, or fetch the tarball yourself and name its path there",
    )


def _compare(found: str, source: SlurmSource, where: str) -> None:
    if found != source.sha256:
        raise CellblockError(
            f"{where}: the tarball is not the one that variants.yaml means"
            f"\n  expected SHA-256: {source.sha256}\n  found:            {found}",
            hint="compare with what Slurm's authors publish; correct `sha256`, or fetch the tarball again",
        )
