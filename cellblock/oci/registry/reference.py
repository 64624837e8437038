# SPDX-License-Identifier: Apache-2.0
"""Reads and checks names of images in registries: HOST[:PORT]/PATH[:TAG][@DIGEST]."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from cellblock.errors import UsageError

# distribution-spec 1.1, "Pulling manifests": <name> and <reference>.
_PATH = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_FORM = "HOST[:PORT]/PATH"
_HOST = re.compile(r"([A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(:[0-9]{1,5})?")


@dataclass(frozen=True)
class Reference:
    """A repository, and an image in it when `tag` or `digest` says which (the digest decides)."""

    host: str
    """With the port when it has one."""
    path: str
    tag: str | None = None
    digest: str | None = None

    @staticmethod
    def parse(text: str) -> Reference:
        """Raises UsageError saying what is wrong. The host must be there: no registry is assumed."""
        name = text.removeprefix("docker://").removesuffix("/")
        scheme, separator, rest = name.partition("://")
        if separator:
            raise UsageError(
                f"'{text}' begins with {scheme}://, which names of images do not have",
                hint=f"write {_advised(rest)}" + (", with --plain-http" if scheme == "http" else ""),
            )
        name, at, digest = name.partition("@")
        if at and not _DIGEST.fullmatch(digest):
            raise _wrong(text, f"'{digest}' is no digest like sha256:0123...")
        host, slash, path = name.partition("/")
        tag = None
        if ":" in path:
            path, _, tag = path.rpartition(":")
            check_tag(tag)
        # As docker decides it: what has neither dot nor port and is not localhost is part of a path.
        if not slash or not ("." in host or ":" in host or host == "localhost"):
            raise _wrong(text, "it names no registry's host")
        if not _HOST.fullmatch(host):
            raise _wrong(text, f"'{host}' is no host name")
        if not _PATH.fullmatch(path):
            raise _wrong(text, f"'{path}' is no path: lower-case letters, digits, and . _ - / between them")
        return Reference(host, path, tag, digest or None)

    @property
    def repository(self) -> str:
        """HOST/PATH."""
        return f"{self.host}/{self.path}"

    @property
    def within(self) -> str:
        """What names the image in its repository: the digest, the tag, or the tag `latest`."""
        return self.digest or self.tag or "latest"

    def below(self, name: str) -> Reference:
        """The repository `name` under this one."""
        return replace(self, path=f"{self.path}/{name}", tag=None, digest=None)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.repository}{tag}{'@' + self.digest if self.digest else ''}"


def check_tag(tag: str) -> str:
    """`tag` itself. Raises UsageError when no registry would take it."""
    if not _TAG.fullmatch(tag):
        raise UsageError(
            f"'{tag}' cannot be a tag: at most 128 letters, digits, _ . and -, not beginning with . or -",
            hint="choose another one with --tag",
        )
    return tag


def _advised(rest: str) -> str:
    """`rest` when it names a repository, else the form of a name: advice that fails again helps nobody."""
    try:
        Reference.parse(rest)
    except UsageError:
        return _FORM
    return rest


def _wrong(text: str, why: str) -> UsageError:
    return UsageError(f"'{text}' names no repository: {why}", hint=f"write {_FORM}")
