"""Secrets in any layer of an image, also those that a later layer removes, and in its configuration.

Whoever can pull an image can read each of its layers: a file that a later one deletes is only hidden.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cellblock.attest.checks.inspected import InspectedImage
from cellblock.attest.checks.secret_forms import file_secrets, is_binary, tokens
from cellblock.attest.finding import Finding
from cellblock.oci.layer_tar import FileStream, members
from cellblock.oci.layout import Layout
from cellblock.oci.model import canonical

# A file is searched in pieces of this size, so that no layer can fill the memory, each with the end of the
# piece before it, so that nothing is missed on the cut. The longest form of secret_forms.py is shorter.
_PIECE = 8 << 20
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
            "`inspect` shows it to whoever can pull the image",
            "revoke it, and pass it to the container when it runs",
        )
