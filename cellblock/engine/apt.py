# SPDX-License-Identifier: Apache-2.0
"""Composes the command lines of mmdebstrap and apt: one option a line, each with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cellblock.engine.recipe import Bootstrap

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
    "var/cache/apt/archives/lock",
    "var/cache/debconf/tmp.ci",
    "etc/*-",
    "usr/sbin/policy-rc.d",
    "usr/share/info/dir",  # written by a trigger, so no exclude of dpkg keeps it out
    "run/cellblock",
    "tmp/*",
)

# Made at random by packages' scripts: each machine needs its own. Emptied, not removed: systemd and
# container engines fill an empty one in (machine-id(5)).
IDENTITIES = ("etc/machine-id", "var/lib/dbus/machine-id")

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


# mmdebstrap filters paths in Perl as it unpacks, which takes two thirds of a bootstrap (22 of 33 s): dpkg,
# which unpacks all once more, is told by a file, and what came before that is removed.
_ROOT = '"$1"'  # quoted: hooks run on this machine, and a blank in a path must not make two of it
_EXCLUDES_FILE = f"{_ROOT}/etc/dpkg/dpkg.cfg.d/98cellblock"
EXTRACT_HOOKS = (
    f"printf '%s\\n' {' '.join(repr(option) for option in DPKG_EXCLUDES)} > {_EXCLUDES_FILE}",
    *(f"rm -rf {_ROOT}/usr/share/{folder}/*" for folder in ("man", "doc", "info", "lintian")),
    f"rm -rf {_ROOT}/usr/share/locale/*/LC_MESSAGES/*",
)

# What mmdebstrap was told for this run would stay in the image, and so in the jail, where people expect apt
# and dpkg as the distribution ships them. The rest came from this machine. Container engines mount their
# own over the last three, and would make them, executable, if absent.
CUSTOMIZE_HOOKS = (
    f"rm -f {_EXCLUDES_FILE}",
    f"rm -f {_ROOT}/etc/dpkg/dpkg.cfg.d/99mmdebstrap {_ROOT}/etc/apt/apt.conf.d/99mmdebstrap",
    f"rm -f {_ROOT}/etc/resolv.conf {_ROOT}/etc/hostname {_ROOT}/etc/hosts",
    # No package has them: a table that is not configured, and the architecture that dpkg takes anyway.
    f"rm -rf {_ROOT}/etc/fstab {_ROOT}/var/lib/dpkg/arch",
    f"rm -rf {_ROOT}/var/cache/apt/archives/lock {_ROOT}/var/cache/debconf/tmp.ci",
    f"install -m 644 /dev/null {_ROOT}/etc/resolv.conf",
    f"install -m 644 /dev/null {_ROOT}/etc/hostname",
    f"printf '127.0.0.1 localhost\\n::1 localhost\\n' > {_ROOT}/etc/hosts",
)


def mmdebstrap(step: Bootstrap, root: Path, *, form: Literal["directory", "tar"] = "directory") -> list[str]:
    """Arguments that bootstrap into the empty folder `root`, or into a tar of that name."""
    argv = ["mmdebstrap", "--mode=root", f"--format={form}", "--variant=apt"]
    argv.append(f"--architectures={step.architecture}")
    argv.append(f"--components={','.join(step.components)}")
    if step.packages:
        argv.append(f"--include={','.join(step.packages)}")
    # A crash throws the whole root away: syncing each file protects nothing.
    argv.append("--dpkgopt=force-unsafe-io")
    argv += [f"--extract-hook={hook}" for hook in EXTRACT_HOOKS]
    argv += [f"--aptopt={name} {_quoted(value)}" for name, value in map(_split, step.apt_options)]
    argv += [f"--customize-hook={hook}" for hook in CUSTOMIZE_HOOKS]
    # Whoever runs the image lays a /dev over it.
    argv.append("--skip=output/mknod")
    if any("file:" in source for source in step.sources):
        # Lets apt inside the root see the archive's folder.
        argv.append("--hook-dir=/usr/share/mmdebstrap/hooks/file-mirror-automount")
    return [*argv, step.suite, str(root), *step.sources]


def _split(option: str) -> tuple[str, str]:
    name, _, value = option.partition("=")
    return name, value


def _quoted(value: str) -> str:
    return '"' + value.replace('"', "") + '"'
