# SPDX-License-Identifier: Apache-2.0
"""Finds and opens built images by name, for audits, SBOMs, attestations and `push`.

Images of the store and of an OCI layout are read in place; those of podman's storage are copied out first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cellblock import paths
from cellblock.attest.subject import Subject
from cellblock.build.references import LABEL, reference
from cellblock.engine import skopeo
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events
from cellblock.graph import check_known
from cellblock.oci.layout import Layout
from cellblock.overrides import images_options, shaped_by
from cellblock.process import Programs
from cellblock.project import Project
from cellblock.release.locks import record_of
from cellblock.store.image_store import image_store
from cellblock.variants import Variant


@dataclass(frozen=True)
class SubjectRequest:
    """Images by name (none: all of the variant that are built) and where they are.

    `source` is "store" (what `build.py build` made), "engine" (podman's and buildah's storage), or oci:DIR.
    """

    images: tuple[str, ...] = ()
    variant: str | None = None
    source: str = "store"
    definitions: Path = field(default_factory=lambda: paths.PROJECT / "images")
    sites: tuple[Path, ...] = ()
    """Folders of a site's own definitions (`--images`)."""


@contextmanager
def open_subjects(request: SubjectRequest, events: Events) -> Iterator[list[Subject]]:
    """The images of `request`, in the order of their definitions.

    Raises UsageError for what does not exist, CellblockError for what is not built.
    """
    project = Project(request.definitions, request.sites)
    variant, declared = project.variant(request.variant), project.images
    check_known(request.images, declared)
    asked = tuple(dict.fromkeys(request.images))
    # The images below overrides are parts of those, and no more.
    public = [name for name, image in declared.items() if not image.is_overridden]

    def choose(present: set[str]) -> list[str]:
        return chosen(asked, public, variant, present, request.source, events)

    with open_source(request.source, variant, choose, events) as (layout, names):
        known = set(layout.references())
        found = [
            Subject(name, variant.name, reference(name, variant), layout, layout.image(stored))
            for name in names
            if (stored := name_in(known, name, variant)) is not None
        ]
        refuse_other_definitions(found, project)
        yield found


def refuse_other_definitions(subjects: Sequence[Subject], project: Project) -> None:
    """Raise CellblockError for an image that was built with other folders of `--images` than now."""
    for subject in subjects:
        record = record_of(subject)
        if record is None or record.shaped_by == shaped_by(subject.name, project.images):
            continue
        built = images_options(tuple(map(Path, record.sites))).strip() or "without --images"
        again = f"build.py build {subject.name} -v {subject.variant}{project.options}"
        raise CellblockError(
            f"{subject.reference} was last built with other definitions than are named here: {built}",
            hint=f"name the same with --images, or build it as it is declared now: `{again}`",
        )


@contextmanager
def open_source(
    source: str,
    variant: Variant,
    choose: Callable[[set[str]], list[str]],
    events: Events,
    *,
    compress: bool = False,
) -> Iterator[tuple[Layout, list[str]]]:
    """The layout of a source, and the names that `choose` took of the references that are there.

    What is read is kept from being collected as garbage. Layers from the engine are compressed on request.
    Raises UsageError for a source that does not exist, and what `choose` raises.
    """
    if source == "engine":
        with tempfile.TemporaryDirectory(prefix="cellblock-images-", dir="/var/tmp") as folder:
            layout = Layout(Path(folder))
            names = choose(_engine_references())
            for name in names:
                _refuse_others(reference(name, variant), variant)
                _copy_from_engine(reference(name, variant), layout, events, compress)
            yield layout, names
    elif source == "store":
        layout = image_store()
        names = choose(set(layout.references()))
        with layout.writing():
            yield layout, names
    elif source.startswith("oci:"):
        layout = Layout(Path(source.removeprefix("oci:")))
        if not (layout.folder / "index.json").is_file():
            raise UsageError(
                f"{layout.folder} is no OCI image layout: it has no index.json",
                hint="give --from oci:DIR with a folder that `build.py build --output` or skopeo wrote",
            )
        yield layout, choose(set(layout.references()))
    else:
        raise UsageError(f"--from {source}: there is no such source", hint="use store, engine, or oci:DIR")


def chosen(
    asked: Sequence[str],
    declared: Collection[str],
    variant: Variant,
    present: set[str],
    source: str,
    events: Events,
) -> list[str]:
    """Names to open: all that were asked for, or those that are there."""
    absent = [name for name in asked or declared if name_in(present, name, variant) is None]
    built = [name for name in asked or declared if name not in absent]
    if not built or (asked and absent):
        which = f" {', '.join(absent)}" if asked else ""
        words = " ".join(["build.py build", *asked, "-v", variant.name])
        raise CellblockError(
            f"{'the store' if source == 'store' else source} has no image{which} of variant {variant.name}",
            hint=f"build {'it' if len(asked) == 1 else 'them'}: `{words}`, or use --from",
        )
    if absent:
        events.info(f"{variant.name}: left out, not built: {', '.join(absent)}")
    return built


def name_in(known: set[str], name: str, variant: Variant) -> str | None:
    """As the builder names an image, and as people do who copy one with skopeo."""
    candidates = (reference(name, variant), f"{name}:{variant.name}", name)
    return next((each for each in candidates if each in known), None)


def _refuse_others(name: str, variant: Variant) -> None:
    """Raises CellblockError when the engine's image is another build than this checkout's last one."""
    source = f"containers-storage:{name}"
    store = image_store()
    own = store.references().get(name)
    stored = store.stored(own).configuration if own else None
    labels = (
        skopeo.configuration(source, programs=Programs(), hint="see `podman images`")["config"].get("Labels")
        or {}
    )
    key = f"{LABEL}.key"
    # What a person made from the Containerfile has no key.
    if key in labels and labels[key] != (stored.settings.get("Labels", {}).get(key) if stored else None):
        image = name.rpartition("/")[2].partition(":")[0]
        raise CellblockError(
            f"{source} is not what this checkout built last: it is an earlier build, or another checkout's",
            hint=f"`build.py build {image} -v {variant.name} --load` puts this checkout's there; "
            "without --from its own is used",
        )


def _engine_references() -> set[str]:
    from cellblock.engine.storage import ContainersStorage

    return set(ContainersStorage(Programs()).images())


def _copy_from_engine(source: str, layout: Layout, events: Events, compress: bool) -> None:
    # The engine keeps layers unpacked: to compress them only to read them here would take most of the time.
    options = ["--dest-compress-format", "zstd"] if compress else ["--dest-oci-accept-uncompressed-layers"]
    with events.step(source, "copy it from the engine"):
        skopeo.copy(
            f"containers-storage:{source}",
            f"oci:{layout.folder}:{source}",
            *options,
            programs=Programs(),
            hint="see `podman images`, and build it again",
        )
