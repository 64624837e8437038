"""Command lines that put exactly the locked packages into a root: mmdebstrap for the first layer, then apt.

Both see one flat archive that holds the locked packages and no other (cellblock.packages.repository).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from cellblock.engine import apt
from cellblock.variants import Variant


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


def install(packages: Sequence[str], repository: str) -> list[str]:
    """Shell lines that install `packages` (NAME=VERSION) from the folder `repository` of the root.

    No service is started, no question asked.
    """
    options = [
        *apt.APT_OPTIONS,
        "Dir::Etc::SourceList=/tmp/sources.list",
        "Dir::Etc::SourceParts=-",
        "Dir::State::Lists=/tmp/lists",
        "Dir::Cache=/tmp/cache",
        "Dir::Log=/tmp",
    ]
    quiet = shlex.join(["apt-get", "-qq", "--yes", *(f"-o{option}" for option in options)])
    # A question nobody can answer must fail, and a changed conffile is the image's own: keep it.
    flags = ("force-unsafe-io", "force-confold", *apt.DPKG_EXCLUDES)
    dpkg = shlex.join([f"-oDPkg::Options::=--{flag}" for flag in flags])
    return [
        # invoke-rc.d asks this program; 101 forbids (invoke-rc.d(8)).
        "printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d",
        "chmod 755 /usr/sbin/policy-rc.d",
        f"echo 'deb [trusted=yes] file:{repository} ./' > /tmp/sources.list",
        "mkdir -p /tmp/lists/partial /tmp/cache/archives/partial",
        f"{quiet} update",
        f"DEBIAN_FRONTEND=noninteractive {quiet} {dpkg} install {shlex.join(packages)} </dev/null",
        "rm /usr/sbin/policy-rc.d",
    ]
