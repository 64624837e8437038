# SPDX-License-Identifier: Apache-2.0
"""Makes the plan of each image: its layers, its settings and its key, which is a digest of all its inputs.

prepare.py and docker_build.py call it. Each input has a digest of its own, so that `why` can name those that
changed. The key of an image of the native engine is over the keys of its layers
(`cellblock.build.layer_graph`) and its settings. The docker engine locks no packages and knows no layers:
there the key is over the definition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cellblock.build.layer_graph import Node, code_digest
from cellblock.build.mirrors import Archive
from cellblock.build.references import key_reference, reference
from cellblock.build.rendering import RenderedImage
from cellblock.cache_key import Key, digest_of, digest_of_tree
from cellblock.engine import apt


@dataclass(frozen=True)
class ImagePlan:
    """An image, its topmost layer, its settings (OCI config.md) and its key, which is over both."""

    rendered: RenderedImage
    top: Node
    settings: Mapping[str, Any]
    key: Key

    @property
    def name(self) -> str:
        """The image's name."""
        return self.rendered.name

    @property
    def reference(self) -> str:
        """The name that people use."""
        return reference(self.name, self.rendered.variant)

    @property
    def key_reference(self) -> str:
        """The name that says what it is made of: finding it means nothing to do."""
        return key_reference(self.name, self.rendered.variant, self.key)


def plan_images(images: Mapping[str, RenderedImage], tops: Mapping[str, Node]) -> dict[str, ImagePlan]:
    """Each image with its layers, in build order."""
    plans: dict[str, ImagePlan] = {}
    for name, image in images.items():
        parent = image.parent
        settings = _settings(image, plans[parent].settings if parent else {})
        inputs = {node.title: node.key.digest for node in tops[name].chain()}
        inputs[f"{image.image.key_name}/image.yaml: settings"] = digest_of(settings)
        plans[name] = ImagePlan(image, tops[name], settings, Key(inputs))
    return plans


def _settings(image: RenderedImage, parent: Mapping[str, Any]) -> dict[str, Any]:
    """The `config` object of an image: what its parent sets in the environment stays."""
    config = image.config
    settings: dict[str, Any] = {"Labels": config.labels}
    inherited = dict(each.split("=", 1) for each in parent.get("Env", ()))
    environment = {"PATH": apt.PATH, **inherited, **config.env}
    settings["Env"] = [f"{name}={value}" for name, value in sorted(environment.items())]
    if config.entrypoint:
        settings["Entrypoint"] = list(config.entrypoint)
    if config.command:
        settings["Cmd"] = list(config.command)
    if config.stop_signal or parent.get("StopSignal"):
        settings["StopSignal"] = config.stop_signal or parent["StopSignal"]
    return settings


def recipe_keys(
    images: Mapping[str, RenderedImage], archive: Archive, slurm_key: str | None = None
) -> dict[str, Key]:
    """The keys of `images`, which stand in build order, for an engine that carries out recipes.

    `slurm_key` is the key of a Slurm compiled from source.
    """
    keys: dict[str, Key] = {}
    for name, each in images.items():
        fields = each.image.fields
        cuda = each.variant.cuda.inputs() if each.variant.cuda else None
        variant = [each.variant.distribution.model_dump(), cuda, each.variant.arch.debian]
        inputs = {
            "the code that builds": code_digest(),
            # Not what Slurm was compiled from: its key says all, and names no folder of this machine.
            "variant": digest_of([*variant, *([slurm_key] if slurm_key else [])]),
            f"{each.image.key_name}/image.yaml": digest_of(
                {
                    "packages": each.packages,
                    "run": each.run,
                    "artifacts": [list(pair) for copy in each.copies for pair in copy.files],
                    "users": [user.model_dump() for user in fields.users],
                    "manuals": fields.manuals,
                    "build": fields.build.model_dump() if fields.build else None,
                    "entrypoint": each.config.entrypoint,
                    "command": each.config.command,
                    "env": each.config.env,
                    "stop_signal": fields.stop_signal,
                    "summary": fields.summary,
                }
            ),
            f"{each.image.key_name}/files": digest_of_tree(each.image.files),
        }
        if each.parent is None and fields.build is None:
            inputs["mirrors"] = digest_of(archive.lines)
        for folder in fields.build.sources if fields.build else ():
            inputs[folder] = digest_of_tree(each.image.source_folder(folder))
        for need in each.image.needs():
            inputs[f"image {need}"] = keys[need].digest
        keys[name] = Key(inputs)
    return keys


# Inputs that all layers of a build have in common.
_COMMON = ("SOURCE_DATE_EPOCH", "compression", "the code that builds", "distribution", "archives")


def all_inputs(plan: ImagePlan) -> dict[str, str]:
    """Every input that shaped an image, by name, through all its layers: what `why` compares."""
    inputs: dict[str, str] = {}
    for node in _needed(plan.top):
        for name, digest in node.key.inputs.items():
            # Keys of layers below say nothing that their own inputs do not say better.
            if name == "the layer below" or name.startswith("image "):
                continue
            own = name.startswith(("package ", "tool ", "images/")) or "/" in name or name in _COMMON
            inputs[name if own else f"{node.title}: {name}"] = digest
        if node.packages:
            inputs[f"{node.title}: which packages"] = digest_of([each.name for each in node.packages])
    settings = f"{plan.rendered.image.key_name}/image.yaml: settings"
    return {**inputs, settings: plan.key.inputs[settings]}


def _needed(node: Node) -> Iterator[Node]:
    """All layers that must be there for `node`, itself last."""
    for each in node.waits_for():
        yield from _needed(each)
    yield node
