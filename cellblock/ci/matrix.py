# SPDX-License-Identifier: Apache-2.0
"""Plans the CI jobs that build several variants: one per architecture, and one that joins architectures.

The jobs share nothing but the registry: it is their cache, and the joining job finds the images there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cellblock.ci.settings import REPOSITORY_VARIABLE, Settings
from cellblock.errors import UsageError
from cellblock.variants import ARCHITECTURES, Variant


@dataclass(frozen=True)
class Job:
    """One job. `architecture` is where it runs; `images` are in build order; `needs` are ids of jobs.

    `commands` are shell lines; `$root` in them runs what follows as root (`settings.as_root`).
    """

    id: str
    kind: Literal["build", "index"]
    variant: str
    architecture: str
    runner: tuple[str, ...]
    images: tuple[str, ...]
    needs: tuple[str, ...]
    commands: tuple[str, ...]


@dataclass(frozen=True)
class Matrix:
    """All jobs, each after those it needs, and the settings that they share."""

    jobs: tuple[Job, ...]
    settings: Settings

    @property
    def variants(self) -> list[str]:
        """Names of the variants, in order."""
        return list(dict.fromkeys(job.variant for job in self.jobs))

    def builds(self, variant: str) -> list[Job]:
        """The building jobs of a variant."""
        return [job for job in self.jobs if job.variant == variant and job.kind == "build"]

    def index(self, variant: str) -> Job:
        """The job that joins a variant's architectures."""
        return next(job for job in self.jobs if job.variant == variant and job.kind == "index")


def plan_jobs(
    variants: Sequence[Variant],
    order: Sequence[str],
    architectures: Sequence[str],
    settings: Settings,
    default_runners: Mapping[str, tuple[str, ...]],
    wanted: Sequence[str] = (),
) -> Matrix:
    """The jobs for `variants`.

    `order` is what a job builds, in build order, and `wanted` what the person named of it (none: all
    images). `architectures` (none: all) limits those that a variant declares. Raises UsageError for an
    unknown one, or when nothing is left to do.
    """
    for name in architectures:
        if name not in ARCHITECTURES:
            raise UsageError(
                f"--arch: there is no architecture '{name}'", hint=f"known: {', '.join(ARCHITECTURES)}"
            )
    runners = {**default_runners, **settings.runners}
    jobs: list[Job] = []
    for variant in variants:
        chosen = [name for name in variant.architectures if not architectures or name in architectures]
        if not chosen:
            continue
        builds = [
            Job(
                f"{variant.name}-{arch}",
                "build",
                variant.name,
                arch,
                runners[arch],
                tuple(order),
                (),
                _build_commands(variant.name, wanted, settings),
            )
            for arch in chosen
        ]
        index = Job(
            f"{variant.name}-index",
            "index",
            variant.name,
            chosen[0],
            runners[chosen[0]],
            tuple(order),
            tuple(job.id for job in builds),
            _index_commands(variant.name, wanted, chosen, settings),
        )
        jobs += [*builds, index]
    if not jobs:
        raise UsageError(
            "none of these variants is built for the chosen architectures",
            hint="see `architectures` in images/variants.yaml",
        )
    return Matrix(tuple(jobs), settings)


def digests_file(variant: str) -> str:
    """Where the joining job writes the tags and digests of a variant, for deployments."""
    return f"digests-{variant}.json"


# The two places that know the command lines of `build.py build` and `build.py push`.


def _build_commands(variant: str, images: Sequence[str], settings: Settings) -> tuple[str, ...]:
    options = ["--variant", variant, "--cache", settings.cache or f'"${REPOSITORY_VARIABLE}"']
    if settings.locked:
        options.append("--locked")
    own = [word for site in settings.sites for word in ("--images", site)]
    push = [f'"${REPOSITORY_VARIABLE}"', *images, "--variant", variant, "--per-arch", *settings.to_push]
    return (
        " ".join([f"$root python3 {settings.program} build", *images, *options, *own]),
        " ".join([f"$root python3 {settings.program} push", *push, *own]),
    )


def _index_commands(
    variant: str, images: Sequence[str], architectures: Sequence[str], settings: Settings
) -> tuple[str, ...]:
    push = [f'"${REPOSITORY_VARIABLE}"', *images, "--variant", variant]
    push += ["--index", "--arch", ",".join(architectures), "--digests", digests_file(variant)]
    push += [*settings.to_join, *(word for site in settings.sites for word in ("--images", site))]
    return (" ".join([f"$root python3 {settings.program} push", *push]),)
