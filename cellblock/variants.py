# SPDX-License-Identifier: Apache-2.0
"""Reads variants (distribution x Slurm x CUDA x architecture) from images/variants.yaml."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from cellblock.errors import CellblockError, DefinitionError, UsageError
from cellblock.machine.host import host_release, newest_of_family
from cellblock.slurm_releases import readable
from cellblock.yaml_source import YamlSource, nearest, read_yaml, validate

# Debian's name of an architecture and GNU's triplet, by what uname(2) calls the machine.
_ARCHITECTURES = {"x86_64": ("amd64", "x86_64-linux-gnu"), "aarch64": ("arm64", "aarch64-linux-gnu")}


ARCHITECTURES = tuple(debian for debian, _ in _ARCHITECTURES.values())
"""Debian's names of the architectures that images can be built for."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CudaPackages(_Strict):
    """The packages of a distribution's own CUDA."""

    runtime: tuple[str, ...] = Field(min_length=1, description="the libraries that compiled programs load")
    development: tuple[str, ...] = Field(min_length=1, description="what compiles programs")


class Distribution(_Strict):
    """One release of a distribution."""

    id: Literal["debian", "ubuntu"] = Field(description="the family, as ID in os-release(5)")
    version: str = Field(description="as VERSION_ID in os-release(5)")
    codename: str = Field(pattern=r"^[a-z]+$", description="what the archive calls the release")
    slurm: str = Field(
        pattern=r"^\d\d\.\d\d$",
        description="the release of Slurm in its archive, major.minor; a build that installs another fails",
    )
    stable: bool = Field(description="whether it may be taken when no variant is named")
    check_valid_until: bool = Field(
        default=True,
        description="`false` accepts an index that is past its date, as mirrors of suites that are not yet "
        "stable can serve; signatures are checked all the same",
    )
    stand_ins: dict[str, str] = Field(
        default_factory=dict,
        description="packages that others depend on and no node uses, and why: images get empty ones",
    )

    @property
    def title(self) -> str:
        """What people call it."""
        return f"{self.id.capitalize()} {self.version} ({self.codename})"

    def components(self, cuda: Cuda | None) -> tuple[str, ...]:
        """Archive components to use; the distribution's own CUDA and NCCL are not in `main`."""
        own = cuda is not None and cuda.nvidia is None
        if self.id == "ubuntu":
            return ("main", "universe", *(("restricted", "multiverse") if own else ()))
        return ("main", *(("contrib", "non-free") if own else ()))


class SlurmSource(_Strict):
    """A release of Slurm to compile: a tarball as its authors publish it."""

    source: str = Field(min_length=1, description="the tarball: a URL, or a path beside variants.yaml")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="of the tarball, 64 digits")
    release: str = Field(
        pattern=r"^\d\d\.\d\d$", description="major.minor, which the tarball must hold: a string in quotes"
    )
    without: tuple[
        Literal["pmix", "hwloc", "jwt", "json-c", "http-parser", "yaml", "lua", "mysql", "nvml"], ...
    ] = Field(default=(), description="what Slurm is compiled without")


class NvidiaRepository(_Strict):
    """A repository of NVIDIA's packages: NVIDIA's own, or a mirror of it. CudaFields has its keys."""

    repository: str = Field(pattern=r"^(https?|file)://\S+$")
    key: str = Field(min_length=1)
    fingerprint: str
    version: str = Field(pattern=r"^\d+\.\d+$")

    @field_validator("fingerprint", mode="before")
    @classmethod
    def _forty_digits(cls, value: object) -> object:
        text = re.sub(r"\s", "", str(value)).upper()
        if not re.fullmatch(r"[0-9A-F]{40}", text):
            raise ValueError("must be the 40 hexadecimal digits of a key's fingerprint, in quotes")
        return text


class CudaFields(_Strict):
    """`cuda: distribution`, or `cuda: {from: nvidia, ...}` with all the other keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    origin: Literal["distribution", "nvidia"] = Field(alias="from", description="whose packages are taken")
    repository: str | None = Field(
        default=None, description="URL of the folder that holds Packages.gz: NVIDIA's, or a mirror's"
    )
    key: str | None = Field(
        default=None, description="the key that signs the repository: a URL, or a path beside variants.yaml"
    )
    fingerprint: str | None = Field(
        default=None, description="of that key: 40 hexadecimal digits, in quotes; another key is refused"
    )
    version: str | None = Field(default=None, description="the CUDA to take, major.minor, in quotes")

    @model_validator(mode="after")
    def _all_or_nothing(self) -> CudaFields:
        keys = ("repository", "key", "fingerprint", "version")
        given = [key for key in keys if getattr(self, key) is not None]
        if self.origin == "distribution" and given:
            raise ValueError(f"{given[0]}: only with `from: nvidia`; the distribution has one CUDA")
        if self.origin == "nvidia" and len(given) < len(keys):
            missing = ", ".join(key for key in keys if key not in given)
            raise ValueError(f"`from: nvidia` also needs {missing}")
        if self.origin == "nvidia":
            _ = self.nvidia
        return self

    @property
    def nvidia(self) -> NvidiaRepository | None:
        """The repository, when it is NVIDIA's."""
        if self.origin == "distribution":
            return None
        return NvidiaRepository.model_validate(self.model_dump(exclude={"origin"}))


class VariantFields(_Strict):
    """The keys of a variant in variants.yaml."""

    distribution: str = Field(description="name of one of `distributions`")
    slurm: SlurmSource | None = Field(
        default=None, description="a release to compile, in place of the one in the distribution's archive"
    )
    cuda: CudaFields | None = Field(
        default=None, description="the CUDA of jail and jail-devel; `distribution` for the distribution's own"
    )
    mirror: str | None = Field(
        default=None, description="URL of the archive to install from, where no `--mirror` is given"
    )
    architectures: tuple[Literal["amd64", "arm64"], ...] = Field(
        default=("amd64", "arm64"), min_length=1, description="those that `build.py matrix` writes jobs for"
    )

    @field_validator("cuda", mode="before")
    @classmethod
    def _one_word(cls, value: object) -> object:
        return {"from": value} if isinstance(value, str) else value


class VariantsFile(_Strict):
    """The keys of variants.yaml."""

    distributions: dict[str, Distribution] = Field(description="releases of distributions, by name")
    cuda: dict[str, CudaPackages] = Field(
        default_factory=dict,
        description="packages of the CUDA that a distribution has, by the distribution's name",
    )
    variants: dict[str, VariantFields] = Field(
        description="what can be built, by the name that `--variant` takes"
    )


class SiteVariantsFile(VariantsFile):
    """The keys of a site's own variants.yaml: each may be left out."""

    distributions: dict[str, Distribution] = Field(default_factory=dict)
    variants: dict[str, VariantFields] = Field(default_factory=dict)


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
    without: tuple[str, ...] = ()
    """What it is compiled without, where it is compiled."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The earlier releases whose state and database it reads."""
        return readable(self.release)


@dataclass(frozen=True)
class Cuda:
    """The CUDA of a variant: which packages, and where they come from.

    `runtime` are the libraries that compiled programs load, `development` what compiles programs;
    `nvidia` is NVIDIA's repository, or None when the distribution has them.
    """

    runtime: tuple[str, ...]
    development: tuple[str, ...]
    nvidia: NvidiaRepository | None = None

    @property
    def origin(self) -> str:
        """`distribution` or `nvidia`."""
        return "nvidia" if self.nvidia else "distribution"

    @property
    def preferences(self) -> str:
        """apt_preferences(5): NVIDIA has an NCCL for each CUDA, and the newest is another's."""
        if self.nvidia is None:
            return ""
        pin = f"Pin: version *+cuda{self.nvidia.version}\nPin-Priority: 1001"
        return f"Package: libnccl2 libnccl-dev\n{pin}\n"

    def inputs(self) -> object:
        """What of it shapes an image: not by which mirror it comes."""
        trust = [self.nvidia.fingerprint, self.nvidia.version] if self.nvidia else []
        return [self.origin, *trust, list(self.runtime), list(self.development)]


@dataclass(frozen=True)
class Variant:
    """A named combination that can be built."""

    name: str
    distribution: Distribution
    cuda: Cuda | None
    mirror: str | None
    arch: Architecture
    architectures: tuple[str, ...] = ARCHITECTURES
    slurm_source: SlurmSource | None = None

    @property
    def slurm(self) -> Slurm:
        """Release and plugin directory of the Slurm that this variant's packages bring."""
        if self.slurm_source:
            source = self.slurm_source
            return Slurm(source.release, f"/usr/lib/{self.arch.gnu}/slurm", source.without)
        # Debian's packaging, and so Ubuntu's, has used this directory since Slurm 2.6.
        return Slurm(self.distribution.slurm, f"/usr/lib/{self.arch.gnu}/slurm-wlm")

    @property
    def summary(self) -> str:
        """One line that says what this variant is."""
        cuda = ", CUDA of the distribution" if self.cuda else ""
        if self.cuda and self.cuda.nvidia:
            cuda = f", CUDA {self.cuda.nvidia.version} of NVIDIA"
        stable = "" if self.distribution.stable else ", not yet stable"
        source = " from source" if self.slurm_source else ""
        return f"{self.distribution.title}, Slurm {self.slurm.release}{source}{cuda}{stable}"


def load_variants(path: Path, *sites: Path) -> dict[str, Variant]:
    """All variants of variants.yaml, by name, for this machine's architecture.

    Distributions, CUDA and variants of the files `sites` are added, or take the place of those here.
    Raises DefinitionError naming file, line and key when a file is wrong.
    """
    source = read_yaml(path)
    fields: VariantsFile = validate(source, VariantsFile)
    declared = dict.fromkeys(fields.variants, source)
    for site in sites:
        source = read_yaml(site)
        own = validate(source, SiteVariantsFile)
        fields = VariantsFile(
            distributions={**fields.distributions, **own.distributions},
            cuda={**fields.cuda, **own.cuda},
            variants={**fields.variants, **own.variants},
        )
        declared.update(dict.fromkeys(own.variants, source))
    arch = Architecture.of_this_machine()
    variants: dict[str, Variant] = {}
    for name, variant in fields.variants.items():
        source = declared[name]
        path = source.path
        distribution = fields.distributions.get(variant.distribution)
        if distribution is None:
            line = source.line(("variants", name, "distribution"))
            raise DefinitionError(
                f"{path}:{line}: variants.{name}.distribution: there is no distribution "
                f"'{variant.distribution}'; {nearest(variant.distribution, fields.distributions)}",
                hint=f"correct {path}",
            )
        variants[name] = Variant(
            name,
            distribution,
            _cuda(source, name, variant, fields),
            variant.mirror,
            arch,
            variant.architectures,
            _beside(path, variant.slurm),
        )
    return variants


def _cuda(source: YamlSource, name: str, variant: VariantFields, known: VariantsFile) -> Cuda | None:
    """The packages of a variant's CUDA. Raises DefinitionError when its distribution has none."""
    if variant.cuda is None:
        return None
    nvidia = variant.cuda.nvidia
    if nvidia:
        if "://" not in nvidia.key:
            nvidia = nvidia.model_copy(update={"key": str(source.path.parent.absolute() / nvidia.key)})
        version = nvidia.version.replace(".", "-")
        runtime = (f"cuda-libraries-{version}", "libnccl2")
        return Cuda(runtime, (f"cuda-toolkit-{version}", "libnccl-dev"), nvidia)
    packages = known.cuda.get(variant.distribution)
    if packages is None:
        line = source.line(("variants", name, "cuda"))
        raise DefinitionError(
            f"{source.path}:{line}: variants.{name}.cuda: no CUDA of {variant.distribution}'s own is known; "
            f"known: {', '.join(known.cuda) or 'none'}",
            hint=f"name its packages in `cuda.{variant.distribution}`, or take `from: nvidia`",
        )
    return Cuda(packages.runtime, packages.development)


def _beside(path: Path, source: SlurmSource | None) -> SlurmSource | None:
    """`source` with a path as an absolute one: relative ones begin where variants.yaml is."""
    if source is None or "://" in source.source:
        return source
    return source.model_copy(update={"source": str(path.parent.absolute() / source.source)})


def candidates(variants: Mapping[str, Variant]) -> list[tuple[str, str, str]]:
    """(variant, distribution, version) of those that may be taken when none is named."""
    return [
        (v.name, v.distribution.id, v.distribution.version)
        for v in variants.values()
        if v.distribution.stable and not v.cuda and not v.slurm_source
    ]


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
    found = newest_of_family(candidates(variants), host)
    if found:
        return variants[found]
    raise UsageError("no stable variant is declared", hint="name one with --variant")
