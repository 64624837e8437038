# SPDX-License-Identifier: Apache-2.0
"""Lists features that Slurm can be compiled with: packages, configure's option, and what proves success.

configure leaves out what it does not find, and says so in a line among a thousand. So its results are
checked: when a feature that was asked for is missing, the build fails before it compiles anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.variants import SlurmSource, Variant


@dataclass(frozen=True)
class Feature:
    """One thing that Slurm is compiled with.

    `packages` hold its headers. `switch` is configure's name of it (none: it has none); `path` is given with
    it, with {gnu} for GNU's name of the architecture. `shows` are patterns, one of which config.h or
    config.status has when configure found it: their names changed between releases.
    """

    name: str
    packages: tuple[str, ...]
    switch: str | None
    shows: tuple[str, ...]
    path: str = ""

    def argument(self, gnu: str, *, wanted: bool) -> tuple[str, ...]:
        """What configure is told."""
        if self.switch is None:
            return ()
        if not wanted:
            return (f"--without-{self.switch}",)
        path = self.path.format(gnu=gnu)
        return (f"--with-{self.switch}{'=' if path else ''}{path}",)

    def found_in(self, results: str) -> bool:
        """Whether configure's results show it."""
        return any(re.search(pattern, results, re.MULTILINE) for pattern in self.shows)


def _defined(*names: str) -> tuple[str, ...]:
    return tuple(rf"^#define {name} 1$" for name in names)


def _conditional(name: str) -> str:
    return rf'^S\["{name}_TRUE"\]=""$'


FEATURES = (
    Feature("munge", ("libmunge-dev",), "munge", (_conditional("WITH_MUNGE"),), "/usr"),
    Feature("pmix", ("libpmix-dev",), "pmix", _defined("HAVE_PMIX"), "/usr/lib/{gnu}/pmix2"),
    Feature("hwloc", ("libhwloc-dev",), "hwloc", _defined("HAVE_HWLOC")),
    Feature("numa", ("libnuma-dev",), None, _defined("HAVE_NUMA")),
    Feature("jwt", ("libjwt-dev",), "jwt", _defined("HAVE_JWT")),
    Feature("json-c", ("libjson-c-dev",), "json", _defined("HAVE_JSON", "HAVE_JSON_C_INC")),
    Feature(
        "http-parser",
        ("libhttp-parser-dev",),
        "http-parser",
        (*_defined("HAVE_HTTP_PARSER"), _conditional("WITH_HTTP_PARSER")),
    ),
    Feature("yaml", ("libyaml-dev",), "yaml", _defined("HAVE_YAML")),
    Feature("lua", ("liblua5.4-dev",), "lua", _defined("HAVE_LUA")),
    Feature("mysql", ("default-libmysqlclient-dev",), "mysql_config", _defined("HAVE_MYSQL")),
)

ALWAYS = ("munge", "numa")
"""No Slurm is compiled without these: munge authenticates, and the headers of numa come with hwloc's."""

# What compiling takes, whatever it is compiled with. dbus is cgroup v2's, PAM's is pam_slurm_adopt's.
_BASE = (
    "gcc",
    "make",
    "libc6-dev",
    "dpkg-dev",
    "pkgconf",
    "bzip2",
    "libdbus-1-dev",
    "libpam0g-dev",
    "libreadline-dev",
    "liblz4-dev",
)


def nvml(variant: Variant) -> Feature | None:
    """NVML for a variant with CUDA: how slurmd finds GPUs by itself."""
    if not variant.cuda:
        return None
    nvidia = variant.cuda.nvidia
    if nvidia:
        package = f"cuda-nvml-dev-{nvidia.version.replace('.', '-')}"
        return Feature("nvml", (package,), "nvml", _defined("HAVE_NVML"), f"/usr/local/cuda-{nvidia.version}")
    return Feature("nvml", ("libnvidia-ml-dev",), "nvml", _defined("HAVE_NVML"))


@dataclass(frozen=True)
class Chosen:
    """What one Slurm is compiled with, and what it is not."""

    wanted: tuple[Feature, ...]
    unwanted: tuple[Feature, ...]
    gnu: str

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages that the toolchain must hold."""
        return (*_BASE, *(package for feature in self.wanted for package in feature.packages))

    @property
    def arguments(self) -> tuple[str, ...]:
        """What configure is told."""
        told = [feature.argument(self.gnu, wanted=True) for feature in self.wanted]
        told += [feature.argument(self.gnu, wanted=False) for feature in self.unwanted]
        return tuple(argument for arguments in told for argument in arguments)

    def check(self, results: str, where: str, log: Path) -> None:
        """Compare with configure's results, the text of config.h and config.status.

        Raises CellblockError naming what was asked for and is absent; `where` says of which Slurm.
        """
        absent = [feature for feature in self.wanted if not feature.found_in(results)]
        if absent:
            names = ", ".join(feature.name for feature in absent)
            optional = [feature.name for feature in absent if feature.name not in ALWAYS]
            advice = (
                f"`without: [{', '.join(optional)}]` leaves it out" if optional else "it cannot be left out"
            )
            raise CellblockError(
                f"{where}: configure did not find {names}, which this Slurm is to be compiled with",
                hint=f"see why in {log}; {advice}",
            )


def choose(variant: Variant, source: SlurmSource) -> Chosen:
    """What the Slurm of `variant` is compiled with: all there is, but for what it says to leave out."""
    gpu = nvml(variant)
    known: Sequence[Feature] = (*FEATURES, *((gpu,) if gpu else ()))
    return Chosen(
        tuple(feature for feature in known if feature.name not in source.without),
        tuple(feature for feature in known if feature.name in source.without),
        variant.arch.gnu,
    )
