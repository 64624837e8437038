# SPDX-License-Identifier: Apache-2.0
"""Asks mmdebstrap for the archives of a distribution, so that no host name need stand in Cellblock.

mmdebstrap takes a third of a second of processor time. Its answer is kept below CELLBLOCK_CACHE/archives
until this machine's packages or trusted keys change.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from cellblock import paths
from cellblock.errors import CellblockError
from cellblock.files import durable
from cellblock.lock.archives import PackageArchive, archives_of
from cellblock.variants import Variant

# What the answer depends on beside mmdebstrap itself.
_MACHINE = ("/var/lib/dpkg/status", "/etc/apt/trusted.gpg.d", "/etc/apt/trusted.gpg", "/usr/share/keyrings")


def default_archives(variant: Variant) -> tuple[PackageArchive, ...]:
    """What mmdebstrap takes when nobody names a mirror.

    Raises CellblockError when mmdebstrap is missing or does not know the suite.
    """
    distribution = variant.distribution
    program = shutil.which("mmdebstrap")
    if program is None:
        raise CellblockError(
            "mmdebstrap is not installed", hint="`python3 build.py doctor` names its package"
        )
    asked = [
        f"--architectures={variant.arch.debian}",
        f"--components={','.join(distribution.components(variant.cuda))}",
        distribution.codename,
    ]
    asked_of = [asked, [_state(Path(path)) for path in (program, *_MACHINE)]]
    kept = paths.cache() / "archives" / f"{variant.name}-{variant.arch.debian}.json"
    lines = _kept_lines(kept, asked_of)
    if lines is None:
        lines = _ask(variant, asked)
        kept.parent.mkdir(parents=True, exist_ok=True)
        durable.replace(kept, json.dumps([asked_of, lines]))
    return archives_of(lines)


def _ask(variant: Variant, asked: list[str]) -> list[str]:
    """Lines of the sources.list(5) that a bootstrap writes; it ends then."""
    with tempfile.TemporaryDirectory(prefix="cellblock-") as folder:
        copy = Path(folder, "sources")
        # The hook fails on purpose: nothing is to be bootstrapped.
        hook = f'cat "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/* > {copy} 2>/dev/null; exit 1'
        argv = ["mmdebstrap", "--quiet", "--mode=root", "--format=directory", "--variant=apt"]
        argv += [f"--setup-hook={hook}", *asked, str(Path(folder, "root"))]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        text = copy.read_text(encoding="utf-8") if copy.is_file() else ""
    lines = [line for line in text.splitlines() if line.startswith("deb ")]
    if not lines:
        raise CellblockError(
            f"mmdebstrap knows no mirror for {variant.distribution.title}: {done.stderr.strip()[-300:]}",
            hint="name one with --mirror",
        )
    return lines


def _state(path: Path) -> list[str | int]:
    """What tells a file or a folder from what it was before."""
    try:
        status = path.stat()
    except OSError:
        return [str(path)]
    return [str(path), status.st_ino, status.st_size, status.st_mtime_ns]


def _kept_lines(kept: Path, asked_of: object) -> list[str] | None:
    try:
        found = json.loads(kept.read_text(encoding="utf-8"))
        if found[0] == asked_of:
            return [str(line) for line in found[1]]
    except (OSError, ValueError, LookupError, TypeError):
        pass  # not kept yet, or not whole
    return None
