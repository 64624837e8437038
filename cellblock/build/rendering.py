# SPDX-License-Identifier: Apache-2.0
"""Fills in the templates in definitions with the values of a variant, once for each image.

Lock, keys, layers and Containerfile are all made from the result. An error names FILE:LINE: KEY.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cellblock.build.references import LABEL
from cellblock.definition import Image
from cellblock.engine.recipe import CompileIn, CopyFrom, ImageConfig
from cellblock.errors import UsageError
from cellblock.lock.resolve import Request
from cellblock.template import Renderer
from cellblock.variants import Variant
from cellblock.yaml_source import Location


@dataclass(frozen=True)
class RenderedImage:
    """A declared image in which every template is rendered; lines that render to nothing are left out.

    `run` and `run_at`: shell lines, and where each stands, FILE:LINE: KEY. `files`: the text of each template
    among the image's files, by its path below their folder, with its `.j2`. `per_machine`: patterns of paths
    that each machine makes, of the image and of those that it is made from.
    """

    image: Image
    variant: Variant
    packages: tuple[str, ...]
    run: tuple[str, ...]
    run_at: tuple[str, ...]
    copies: tuple[CopyFrom, ...]
    compiling: CompileIn | None
    config: ImageConfig
    files: Mapping[str, str]
    per_machine: tuple[str, ...]

    @property
    def name(self) -> str:
        """The image's name."""
        return self.image.name

    @property
    def parent(self) -> str | None:
        """The image that it is made from, if there is one."""
        return self.image.fields.parent


def render_images(variant: Variant, images: Iterable[Image]) -> dict[str, RenderedImage]:
    """Render `images`, which stand in build order. Raises DefinitionError when a template is wrong."""
    renderer = Renderer(variant)
    rendered: dict[str, RenderedImage] = {}
    for image in images:
        inherited = rendered[image.fields.parent].per_machine if image.fields.parent else ()
        rendered[image.name] = _render(renderer, variant, image, inherited, rendered)
    return rendered


def refuse_unavailable(variants: Mapping[str, Variant], variant: Variant, images: Iterable[Image]) -> None:
    """Raise UsageError when one of `images` says that it cannot be built for `variant`.

    The next step names those of `variants` that can have it.
    """
    for image in images:
        why = refusal(variant, image)
        if why:
            able = [name for name, each in variants.items() if not refusal(each, image)]
            command = f"`python3 build.py build {image.name} --variant {' '.join(able[:1])}`"
            others = f" (or {', '.join(able[1:])})" if able[1:] else ""
            place = _place(image, ("refused",))
            raise UsageError(
                f"{place}: image {image.name} cannot be built for {variant.name}: {why}",
                hint=f"build it for another variant: {command}{others}" if able else f"change {place}",
            )


def refusal(variant: Variant, image: Image) -> str:
    """Why `image` cannot be built for `variant`; empty when it can."""
    return _text(Renderer(variant), image, image.fields.refused or "", ("refused",)).strip()


def render_packages(variant: Variant, images: Iterable[Image]) -> dict[str, tuple[str, ...]]:
    """Only the packages that each image asks for, for a variant that is compared with."""
    renderer = Renderer(variant)
    return {image.name: _packages(renderer, image) for image in images}


def lock_requests(rendered: Mapping[str, RenderedImage]) -> dict[str, Request]:
    """What the resolver is asked for: the packages of each image that holds some, parents first."""
    return {
        name: Request(
            each.parent,
            each.packages,
            f"{each.image.source.path}:{each.image.source.line(('packages',))}",
        )
        for name, each in rendered.items()
        if not each.compiling  # such an image holds only what was compiled
    }


def _render(
    renderer: Renderer,
    variant: Variant,
    image: Image,
    inherited: tuple[str, ...],
    below: Mapping[str, RenderedImage],
) -> RenderedImage:
    fields = image.fields
    run, run_at = _lines(renderer, image, fields.run, "run")
    compiling = None
    if fields.build:
        lines, at = _lines(renderer, image, fields.build.run, "build", "run")
        sources = tuple((image.source_folder(name), there) for name, there in fields.build.sources.items())
        place = _place(image, ("build",))
        build = fields.build
        compiling = CompileIn(build.toolchain, sources, lines, build.output, build.objects or "", at, place)
    config = ImageConfig(
        labels={
            f"{LABEL}.image": image.name,
            f"{LABEL}.variant": variant.name,
            f"{LABEL}.slurm": variant.slurm.release,
            "org.opencontainers.image.title": f"cellblock {image.name}",
            "org.opencontainers.image.description": fields.summary,
        },
        env={name: _text(renderer, image, text, ("env", name)) for name, text in fields.env.items()},
        entrypoint=_lines(renderer, image, fields.entrypoint, "entrypoint")[0],
        command=_lines(renderer, image, fields.command, "command")[0],
        stop_signal=fields.stop_signal,
    )
    templates = sorted(path for path in image.files.rglob("*.j2") if path.is_file() and not path.is_symlink())
    return RenderedImage(
        image=image,
        variant=variant,
        packages=_packages(renderer, image),
        run=run,
        run_at=run_at,
        copies=_copies(renderer, image, below),
        compiling=compiling,
        config=config,
        files={str(path.relative_to(image.files)): renderer.file(path) for path in templates},
        per_machine=tuple(dict.fromkeys((*inherited, *fields.per_machine))),
    )


def _packages(renderer: Renderer, image: Image) -> tuple[str, ...]:
    """One template can stand for a list of packages, or for none."""
    return tuple(" ".join(_lines(renderer, image, image.fields.packages, "packages")[0]).split())


def _copies(renderer: Renderer, image: Image, below: Mapping[str, RenderedImage]) -> tuple[CopyFrom, ...]:
    copies = []
    one = isinstance(image.source.data.get("artifacts"), dict)
    for index, artifacts in enumerate(image.fields.artifacts):
        files, places = [], []
        origin = below[artifacts.image].image
        override = f" (image {origin.name} is {origin.source.path}, an override)" if origin.overrides else ""
        for there, here in artifacts.files.items():
            at: Location = ("artifacts", *(() if one else (index,)), "files", there)
            files.append((_text(renderer, image, there, at), _text(renderer, image, here, at)))
            places.append(_place(image, at) + override)
        copies.append(CopyFrom(artifacts.image, tuple(files), tuple(places)))
    return tuple(copies)


def _lines(
    renderer: Renderer, image: Image, templates: list[str], *key: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Templates rendered, without those that render to nothing, and where each stands: FILE:LINE: KEY."""
    texts = [_text(renderer, image, text, (*key, index)) for index, text in enumerate(templates)]
    kept = [(text, _place(image, (*key, index))) for index, text in enumerate(texts) if text.strip()]
    return tuple(text for text, _ in kept), tuple(at for _, at in kept)


def _text(renderer: Renderer, image: Image, template: str, at: Location) -> str:
    key = ".".join(str(part) for part in at)
    return renderer.text(template, f"{image.source.path}:{image.source.line(at)}: {key}")


def _place(image: Image, at: Location) -> str:
    """FILE:LINE: KEY; a list's numbers and the files' paths say nothing that the line does not."""
    key = ".".join(str(part) for part in at if isinstance(part, str) and "/" not in part)
    return f"{image.source.path}:{image.source.line(at)}: {key}"
