"""Variants: distribution x Slurm x CUDA x architecture, from images/variants.yaml."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from cellblock.errors import CellblockError, DefinitionError, UsageError
from cellblock.yaml_source import nearest, read_yaml, validate

# Debian's name of an architecture and GNU's triplet, by what uname(2) calls the machine.
_ARCHITECTURES = {"x86_64": ("amd64", "x86_64-linux-gnu"), "aarch64": ("arm64", "aarch64-linux-gnu")}


ARCHITECTURES = tuple(debian for debian, _ in _ARCHITECTURES.values())
"""Debian's names of the architectures that images can be built for."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Distribution(_Strict):
    """One release of a distribution; `slurm` is the major.minor release that its archive carries.

    `check_valid_until: false` accepts an index that is past its date, as mirrors of suites that are
    not yet stable can serve; signatures are checked all the same.
    """

    id: Literal["debian", "ubuntu"]
    version: str
    codename: str = Field(pattern=r"^[a-z]+$")
    slurm: str = Field(pattern=r"^\d\d\.\d\d$")
    stable: bool
    check_valid_until: bool = True

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{self.id.capitalize()} {self.version} ({self.codename})"

    def components(self, cuda: str | None) -> tuple[str, ...]:
        """Archive components to use; CUDA and NCCL are not in `main`."""
        if self.id == "ubuntu":
            return ("main", "universe", *(("restricted", "multiverse") if cuda else ()))
        return ("main", *(("contrib", "non-free") if cuda else ()))


class VariantFields(_Strict):
    """The keys of a variant in variants.yaml."""

    distribution: str
    cuda: Literal["distribution"] | None = None
    mirror: str | None = None
    architectures: tuple[Literal["amd64", "arm64"], ...] = Field(default=("amd64", "arm64"), min_length=1)


class VariantsFile(_Strict):
    """The keys of variants.yaml."""

    distributions: dict[str, Distribution]
    variants: dict[str, VariantFields]


@dataclass(frozen=True)
class Architecture:
    """A processor architecture under the names that different tools give it."""

    debian: str
    gnu: str

    @classmethod
    def of_this_machine(cls) -> Architecture:
        """The running kernel's. Raises CellblockError on one that no image supports."""
        machine = platform.machine()
        if machine not in _ARCHITECTURES:
            raise CellblockError(
                f"this machine is {machine}; images exist for {', '.join(_ARCHITECTURES)}",
                hint="build on one of these",
            )
        return cls(*_ARCHITECTURES[machine])


@dataclass(frozen=True)
class Slurm:
    """The Slurm of a variant: its major.minor release and the directory that plugins are loaded from."""

    release: str
    plugin_dir: str


@dataclass(frozen=True)
class Variant:
    """A named combination that can be built."""

    name: str
    distribution: Distribution
    cuda: str | None
    mirror: str | None
    arch: Architecture
    architectures: tuple[str, ...] = ARCHITECTURES

    @property
    def slurm(self) -> Slurm:
        """Release and plugin directory of the Slurm that this variant's packages bring."""
        # Debian's packaging, and so Ubuntu's, has used this directory since Slurm 2.6.
        return Slurm(self.distribution.slurm, f"/usr/lib/{self.arch.gnu}/slurm-wlm")

    @property
    def summary(self) -> str:
        """One line that says what this variant is."""
        cuda = ", CUDA of the distribution" if self.cuda else ""
        stable = "" if self.distribution.stable else ", not yet stable"
        return f"{self.distribution.title}, Slurm {self.slurm.release}{cuda}{stable}"


def load_variants(path: Path) -> dict[str, Variant]:
    """All variants of variants.yaml, by name, for this machine's architecture.

    Raises DefinitionError naming file, line and key when the file is wrong.
    """
    source = read_yaml(path)
    fields = validate(source, VariantsFile, source.data)
    arch = Architecture.of_this_machine()
    variants: dict[str, Variant] = {}
    for name, variant in fields.variants.items():
        distribution = fields.distributions.get(variant.distribution)
        if distribution is None:
            line = source.line(("variants", name, "distribution"))
            raise DefinitionError(
                f"{path}:{line}: variants.{name}.distribution: there is no distribution "
                f"'{variant.distribution}'; {nearest(variant.distribution, fields.distributions)}",
                hint=f"correct {path}",
            )
        variants[name] = Variant(
            name, distribution, variant.cuda, variant.mirror, arch, variant.architectures
        )
    return variants


def host_release(os_release: Path = Path("/etc/os-release")) -> dict[str, str]:
    """os-release(5) of this machine as a mapping; empty when there is none."""
    try:
        lines = os_release.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, value in pairs}


def choose_variant(
    variants: Mapping[str, Variant], name: str | None, host: Mapping[str, str] | None = None
) -> Variant:
    """The variant called `name`; without a name the newest stable one of the host's family.

    `host` is the host's os-release (default: read it). A host of another family gets Debian's.
    Raises UsageError for an unknown name, with the near miss.
    """
    if name is not None:
        if name not in variants:
            raise UsageError(
                f"there is no variant '{name}'; {nearest(name, variants)}", hint="see `build.py targets`"
            )
        return variants[name]
    host = host_release() if host is None else host
    family = host.get("ID", ""), *host.get("ID_LIKE", "").split()
    plain = [v for v in variants.values() if v.distribution.stable and not v.cuda]
    # Ubuntu says ID_LIKE=debian: its own ID decides first.
    for id_ in (*family, "debian"):
        mine = [v for v in plain if v.distribution.id == id_]
        if mine:
            return max(mine, key=lambda v: [int(part) for part in v.distribution.version.split(".")])
    raise UsageError("no stable variant is declared", hint="name one with --variant")
