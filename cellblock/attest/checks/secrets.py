# SPDX-License-Identifier: Apache-2.0
"""Searches all layers of an image for secrets, also those that a later layer removes, and its configuration.

Whoever can pull an image can read each of its layers: a file that a later one deletes is only hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cellblock.attest.checks.checked_image import InspectedImage
from cellblock.attest.checks.secret_forms import file_secrets, is_binary, tokens
from cellblock.attest.checks.secret_names import names_secret, secret_assignments, url_password
from cellblock.attest.finding import Finding
from cellblock.oci.layer_tar import FileStream, members
from cellblock.oci.layout import Layout
from cellblock.oci.model import canonical

# A file is searched in pieces of this size, so that no layer can fill the memory, each with the end of the
# piece before it, so that nothing is missed on the cut. The longest form of secret_forms.py is shorter.
_PIECE = 8 << 20
_INSPECT = "`inspect` shows it to whoever can pull the image"
_PASS = "revoke it, and pass it to the container when it runs"
_OVERLAP = 4096


@dataclass(frozen=True)
class Secret:
    """A secret in a layer, whoever has that layer. `what` never holds the secret itself."""

    path: str
    what: str
    why: str
    next: str


class SecretScanner:
    """Searches layers, each once, however many images hold it."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Secret, ...]] = {}

    def layer(self, layout: Layout, digest: str) -> tuple[Secret, ...]:
        """The secrets of a layer of `layout`. Raises MalformedImage."""
        if digest not in self._found:
            self._found[digest] = tuple(_search(layout, digest))
        return self._found[digest]

    def check(self, image: InspectedImage) -> Iterator[Finding]:
        """One finding a secret."""
        name, variant = image.subject.name, image.subject.variant
        layers = image.subject.image.manifest.layers
        for number, layer in enumerate(layers):
            for secret in self.layer(image.subject.layout, layer.digest):
                entry = image.contents.entries.get(secret.path)
                hidden = entry is None or entry.layer != number
                removed = "; a later layer hides it, and it can be read all the same" if hidden else ""
                yield Finding(
                    "secret",
                    name,
                    variant,
                    f"/{secret.path} is or holds {secret.what}{removed}",
                    secret.why,
                    secret.next,
                    path=f"/{secret.path}",
                    layer=layer.digest,
                )
        yield from _of_configuration(image)


def _search(layout: Layout, digest: str) -> Iterator[Secret]:
    for entry, stream in members(layout.blob(digest)):
        if stream is not None and entry.size:
            yield from _search_file(entry.path, stream)


def _search_file(path: str, stream: FileStream) -> Iterator[Secret]:
    piece = stream.read(_PIECE)
    for form in file_secrets(path, piece):
        yield Secret(path, form.what, form.why, form.next)
    binary = is_binary(piece)
    seen: set[str] = set()
    offset = 0
    while piece:
        for what, at in tokens(piece, binary=binary):
            if what not in seen:
                seen.add(what)
                yield Secret(
                    path,
                    f"{what} (byte {offset + at})",
                    "whoever can pull the image has it, in each of its copies, for ever",
                    "revoke it, remove it from what brought it into the image, and build again",
                )
        more = stream.read(_PIECE)
        if not more:
            return
        offset += len(piece) - min(_OVERLAP, len(piece))
        piece = piece[-_OVERLAP:] + more


def _of_configuration(image: InspectedImage) -> Iterator[Finding]:
    configuration = image.subject.image.configuration
    text = canonical({"config": dict(configuration.settings), "history": [*configuration.history]})
    for what, _ in tokens(text):
        yield Finding(
            "secret",
            image.subject.name,
            image.subject.variant,
            f"its configuration (environment, labels or history) holds {what}",
            _INSPECT,
            _PASS,
        )
    variables = [each.partition("=")[::2] for each in _texts(configuration.settings.get("Env"))]
    labels = configuration.settings.get("Labels") or {}
    for kind, pairs in (("environment", variables), ("labels", list(labels.items()))):
        for name, value in pairs:
            words = re.sub(r"[^A-Za-z0-9]+", "_", name.rpartition(".")[2])
            data = str(value).encode()
            # A token that is known by its form was told of above.
            if not any(tokens(data)) and data.strip() and (names_secret(words) or url_password(data)):
                yield _variable(image, f"{name} of its {kind} holds a secret", name)
    history = [str(step.get("created_by", "")) for step in configuration.history]
    commands = [*_texts(configuration.settings.get("Entrypoint")), *_texts(configuration.settings.get("Cmd"))]
    for where, texts in (("history", history), ("command", commands)):
        for name in dict.fromkeys(name for text in texts for name in secret_assignments(text.encode())):
            yield _variable(image, f"its {where} gives {name} a secret", name)


def _variable(image: InspectedImage, what: str, name: str) -> Finding:
    return Finding("secret", image.subject.name, image.subject.variant, what, _INSPECT, _PASS, package=name)


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else []
