# SPDX-License-Identifier: Apache-2.0
"""Makes the command lines that install exactly the locked packages in the root of a layer.

layer_builder.py unpacks most packages by tar (unpack_packages.py). mmdebstrap makes a first layer where tar
cannot, and apt installs where dpkg alone fails. Both see one archive that holds only the locked packages
(cellblock.packages.repository). This module also makes the files that mmdebstrap would make (dpkg's and apt's
databases, device nodes), for a first layer that tar unpacks.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from cellblock.build.unpack_packages import MERGED, TAR, Opened, Unpacking, finish
from cellblock.build.working_root import MARK
from cellblock.engine import apt
from cellblock.variants import Variant

_FORBID_SERVICES = (
    "export DEBIAN_FRONTEND=noninteractive",
    # invoke-rc.d asks this program; 101 forbids (invoke-rc.d(8)).
    "printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d",
    "chmod 755 /usr/sbin/policy-rc.d",
)

# What essential packages' scripts need and do not declare: users, folders, and awk.
_FIRST = ("base-passwd", "base-files", "mawk")


PAUSE_S = 0.02
"""Before and after what is marked: longer than a tick of the clock that files' times are of."""


def mmdebstrap(
    variant: Variant, packages: Sequence[str], repository: Path, sources: Path, root: Path
) -> list[str]:
    """Arguments that bootstrap `packages` of `repository` into the empty folder `root`.

    `sources` is a file that becomes the root's /etc/apt/sources.list.
    """
    argv = ["mmdebstrap", "--mode=root", "--format=directory", "--variant=apt"]
    argv.append(f"--architectures={variant.arch.debian}")
    argv.append(f"--include={','.join(packages)}")
    # A crash throws the whole root away: syncing each file protects nothing.
    argv.append("--dpkgopt=force-unsafe-io")
    argv += [f"--extract-hook={hook}" for hook in apt.EXTRACT_HOOKS]
    argv += [f"--customize-hook={hook}" for hook in apt.CUSTOMIZE_HOOKS]
    argv.append(f"--customize-hook=upload {shlex.quote(str(sources))} /etc/apt/sources.list")
    # The builder removes what differs from build to build, and layers hold no device nodes.
    argv += ["--skip=cleanup/reproducible", "--skip=output/mknod"]
    return [*argv, variant.distribution.codename, str(root), f"deb [trusted=yes] copy:{repository} ./"]


def install(unpacking: Unpacking, repository: str) -> list[str]:
    """Shell lines that install what `unpacking` says from the folder `repository` of the root.

    They read the tar that `unpacking.feed` writes. By dpkg itself: which packages and versions is settled,
    and asking apt again takes a second a layer. apt decides only where the order of dependencies does not do.
    No service is started, no question asked.
    """
    packages = [each.package for each in (*unpacking.laid, *unpacking.by_dpkg)]
    return [
        *_FORBID_SERVICES,
        shlex.join([*TAR, "--directory=/"]),
        # What is changed after this is not as it was laid down.
        f"sleep {PAUSE_S}; : > {MARK}; sleep {PAUSE_S}",
        f"{{ {finish(unpacking, repository)}; }} </dev/null || {{",
        # Ended from outside: the build is being stopped.
        "status=$?; [ $status -lt 128 ] || exit $status",
        "echo 'dpkg alone did not do; apt goes on'",
        *_by_apt([f"{package.name}={package.version}" for package in packages], repository),
        "}",
        "rm /usr/sbin/policy-rc.d",
    ]


def configure_base(unpacking: Unpacking, repository: str) -> list[str]:
    """Shell lines that finish a first layer whose files, all of them, are laid down."""
    there = {each.package.name for each in (*unpacking.laid, *unpacking.by_dpkg)}
    first = [name for name in _FIRST if name in there]
    return [
        *_FORBID_SERVICES,
        f"{finish(unpacking, repository, first)} </dev/null",
        "rm /usr/sbin/policy-rc.d",
    ]


def settle(root: Path, sources: str) -> None:
    """What a first layer has besides its packages, as mmdebstrap and its hooks make it."""
    for name, text in {
        "etc/apt/sources.list": sources,
        "etc/resolv.conf": "",
        "etc/hostname": "",
        "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)


def merged_folders(opened: Sequence[Opened]) -> tuple[str, ...] | None:
    """The folders of / to be made links into /usr before files are laid down; None: mmdebstrap must do it.

    Since Debian 13 base-files has the links itself; before, whoever made the root did. None where a file's
    way leads through another link: which one is there first would decide where it ends.
    """
    links = {path for each in opened for path in each.deb.links}
    places = {folder.path for each in opened for folder in each.deb.folders}
    places.update(path for each in opened for path in each.deb.paths)
    missing = tuple(name for name in MERGED if f"/{name}" not in links)
    for path in places:
        parts = path.split("/")
        for end in range(2, len(parts)):
            parent = "/".join(parts[:end])
            if parent in links and parent.lstrip("/") not in MERGED:
                return None
    if not missing:
        return ()
    # All of them or none: a release in between is not known here.
    return MERGED if len(missing) == len(MERGED) else None


def _by_apt(packages: Sequence[str], repository: str) -> list[str]:
    """Shell lines that have apt install `packages` (NAME=VERSION) and nothing else."""
    options = [
        *apt.APT_OPTIONS,
        "Dir::Etc::SourceList=/tmp/sources.list",
        "Dir::Etc::SourceParts=-",
        "Dir::State::Lists=/tmp/lists",
        "Dir::Cache=/tmp/cache",
        "Dir::Log=/tmp",
    ]
    quiet = shlex.join(["apt-get", "-qq", "--yes", *(f"-o{option}" for option in options)])
    dpkg = shlex.join([f"-oDPkg::Options::=--{flag}" for flag in apt.DPKG_OPTIONS])
    return [
        f"echo 'deb [trusted=yes] file:{repository} ./' > /tmp/sources.list",
        "mkdir -p /tmp/lists/partial /tmp/cache/archives/partial",
        f"{quiet} update",
        f"{quiet} {dpkg} --fix-broken install {shlex.join(packages)} </dev/null",
    ]
