"""The command lines of mmdebstrap and apt: one option a line, each with its reason."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Literal

from cellblock.engine.recipe import Bootstrap, Install

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# No page of documentation is read in a container; copyright files stay, licences ask for them.
DPKG_EXCLUDES = (
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/lintian/*",
    "path-exclude=/usr/share/locale/*/LC_MESSAGES/*",
)

# A crash throws the whole root away. A question nobody can answer must fail, and a changed conffile is the
# image's own: keep it.
DPKG_OPTIONS = ("force-unsafe-io", "force-confold", *DPKG_EXCLUDES)

# Written by package tools while building; no part of an image.
LEFTOVERS = (
    "var/log/apt/*",
    "var/log/dpkg.log",
    "var/log/alternatives.log",
    "var/log/bootstrap.log",
    "var/cache/ldconfig/aux-cache",
    "var/cache/debconf/*-old",
    "var/lib/dpkg/*-old",
    "var/lib/apt/lists/*",
    "var/cache/apt/*.bin",
    "var/cache/apt/archives/*.deb",
    "etc/*-",
    "usr/sbin/policy-rc.d",
    "usr/share/info/dir",  # written by a trigger, so no exclude of dpkg keeps it out
    "run/cellblock",
    "tmp/*",
)

# Made at random by packages' scripts: each machine needs its own. Emptied, not removed: systemd and
# container engines fill an empty one in (machine-id(5)).
IDENTITIES = ("etc/machine-id", "var/lib/dbus/machine-id")

# Keys that packages' scripts make. Definitions remove them; where each step is a layer of its own, that is
# too late, for the layer before would still hold them.
SECRETS = ("etc/munge/munge.key", "etc/ssh/ssh_host_*")

# How long fetched package lists serve before they are fetched again. A build takes minutes; an hour
# keeps the images of one variant on one state of the archive without hiding updates for long.
_LISTS_FRESH_S = 3600

APT_OPTIONS = (
    # The package cache belongs to root and is mounted from outside: no sandbox user owns it.
    "APT::Sandbox::User=root",
    # Derived from the lists for one image only, and written by images side by side.
    "Dir::Cache::pkgcache=",
    "Acquire::Languages=none",
    "Acquire::Retries=3",
    # What a package suggests or recommends is not asked for.
    "APT::Install-Recommends=false",
    "APT::Install-Suggests=false",
)


# What mmdebstrap was told for this run would stay in the image, and so in the jail, where people expect apt
# and dpkg as the distribution ships them. The rest came from this machine. Container engines mount their
# own over the last three, and would make them, executable, if absent.
CUSTOMIZE_HOOKS = (
    "rm -f $1/etc/dpkg/dpkg.cfg.d/99mmdebstrap $1/etc/apt/apt.conf.d/99mmdebstrap",
    "rm -f $1/etc/resolv.conf $1/etc/hostname $1/etc/hosts",
    "install -m 644 /dev/null $1/etc/resolv.conf",
    "install -m 644 /dev/null $1/etc/hostname",
    "printf '127.0.0.1 localhost\\n::1 localhost\\n' > $1/etc/hosts",
)


def mmdebstrap(step: Bootstrap, root: Path, *, form: Literal["directory", "tar"] = "directory") -> list[str]:
    """Arguments that bootstrap into the empty folder `root`, or into a tar of that name."""
    argv = ["mmdebstrap", "--mode=root", f"--format={form}", "--variant=apt"]
    argv.append(f"--architectures={step.architecture}")
    argv.append(f"--components={','.join(step.components)}")
    if step.packages:
        argv.append(f"--include={','.join(step.packages)}")
    # A crash throws the whole root away: syncing each file protects nothing.
    argv += [f"--dpkgopt={option}" for option in (*DPKG_EXCLUDES, "force-unsafe-io")]
    # Who owns apt's folders must not depend on whether its sandbox user can reach the place of the root.
    options = ("APT::Sandbox::User=root", *step.apt_options)
    argv += [f"--aptopt={name} {_quoted(value)}" for name, value in map(_split, options)]
    argv += [f"--customize-hook={hook}" for hook in CUSTOMIZE_HOOKS]
    if any("file:" in source for source in step.sources):
        # Lets apt inside the root see the archive's folder.
        argv.append("--hook-dir=/usr/share/mmdebstrap/hooks/file-mirror-automount")
    return [*argv, step.suite, str(root), *step.sources]


def update(step: Install) -> list[str]:
    """Shell lines that fetch the package lists."""
    return _with_sources(step, _apt_get(step, "update", "APT::Update::Error-Mode=any"))


def download(step: Install) -> list[str]:
    """Shell lines that fetch what installing needs and the cache lacks."""
    return _with_sources(step, _apt_get(step, f"install --download-only {shlex.join(step.packages)}"))


def install(step: Install) -> list[str]:
    """Shell lines that unpack and configure what was downloaded; no service is started."""
    locking = "Debug::NoLocking=true"  # images install side by side from one archive folder
    return [
        # invoke-rc.d asks this program; 101 forbids (invoke-rc.d(8)).
        "printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d",
        "chmod 755 /usr/sbin/policy-rc.d",
        *_with_sources(step, _apt_get(step, f"install {shlex.join(step.packages)}", locking)),
        "rm /usr/sbin/policy-rc.d",
    ]


_BUILD_SOURCES = "/etc/apt/sources.list.d/cellblock-build.list"
_BUILD_PREFERENCES = "/etc/apt/preferences.d/cellblock-build"


def _with_sources(step: Install, line: str) -> list[str]:
    """`line` while apt also knows the step's own sources and preferences."""
    texts = {
        _BUILD_SOURCES: "".join(f"{source}\n" for source in step.sources),
        _BUILD_PREFERENCES: step.preferences,
    }
    given = {path: text for path, text in texts.items() if text}
    before = [f"printf %s {shlex.quote(text)} > {path}" for path, text in given.items()]
    return [*before, line, *(f"rm {path}" for path in given)]


def _apt_get(step: Install, command: str, *more: str) -> str:
    options = shlex.join(f"-o{option}" for option in (*APT_OPTIONS, *step.apt_options, *more))
    dpkg = shlex.join(f"-oDPkg::Options::=--{flag}" for flag in DPKG_OPTIONS)
    return f"DEBIAN_FRONTEND=noninteractive apt-get -qq --yes {options} {dpkg} {command} </dev/null"


def cache_volumes(cache: Path) -> list[str]:
    """buildah's --volume values that give a container the variant's package lists and debs."""
    lists, archives = cache / "lists", cache / "archives"
    for folder in (lists / "partial", archives / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    return [f"{lists}:/var/lib/apt/lists", f"{archives}:/var/cache/apt/archives"]


def lists_are_fresh(cache: Path) -> bool:
    """Whether the lists were fetched within the last hour."""
    try:
        age = time.time() - (cache / "lists-fetched").stat().st_mtime
    except FileNotFoundError:
        return False
    return 0 <= age < _LISTS_FRESH_S


def lists_were_fetched(cache: Path) -> None:
    """Note that the lists are of now."""
    (cache / "lists-fetched").touch()


class PhaseClock:
    """Tells from mmdebstrap's output how many seconds it spent downloading."""

    _DOWNLOADS = ("I: running apt-get update", "I: downloading packages with apt")

    def __init__(self) -> None:
        self.downloading_s = 0.0
        self._since: float | None = None

    def line(self, text: str) -> None:
        """Look at one line of output, as it appears."""
        if not text.startswith("I: "):
            return
        now = time.monotonic()
        if self._since is not None:
            self.downloading_s += now - self._since
        self._since = now if text.startswith(self._DOWNLOADS) else None


def _split(option: str) -> tuple[str, str]:
    name, _, value = option.partition("=")
    return name, value


def _quoted(value: str) -> str:
    return '"' + value.replace('"', "") + '"'
