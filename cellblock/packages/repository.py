# SPDX-License-Identifier: Apache-2.0
"""Makes a flat apt repository of exactly the packages asked for: `deb [trusted=yes] file:/FOLDER ./`.

apt can then find only the versions that a lock names. The debs are hard links into the package store, so the
folder also works through a bind mount inside a root filesystem.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.files import durable
from cellblock.lock.model import LockedPackage
from cellblock.packages.store import PackageStore, link


def write_repository(packages: Iterable[LockedPackage], store: PackageStore, folder: Path) -> None:
    """Make `folder`, which must not exist, the repository of `packages`, fetched into `store` before.

    Raises CellblockError when a deb is not in the store, or is no deb.
    """
    wanted = sorted(packages, key=lambda package: package.name)
    with store.hold():
        controls = _controls(wanted, store)
        folder.mkdir(parents=True)
        stanzas = []
        for package, control in zip(wanted, controls, strict=True):
            link(store.path(package), folder / package.deb)
            stanzas.append(
                f"{control}Filename: ./{package.deb}\nSize: {package.size}\nSHA256: {package.sha256}\n"
            )
    text = "\n".join(stanzas).encode()
    (folder / "Packages").write_bytes(text)
    # With a Release file apt checks the list's hash and does not miss one; it wants a date, and takes any.
    sums = f"SHA256:\n {hashlib.sha256(text).hexdigest()} {len(text)} Packages\n"
    date = "Date: Thu, 01 Jan 1970 00:00:00 +0000\n"
    (folder / "Release").write_text(f"Origin: cellblock\nLabel: cellblock\n{date}{sums}", encoding="utf-8")


def _controls(packages: list[LockedPackage], store: PackageStore) -> list[str]:
    """Control fields of each deb, each ending in a newline."""
    texts: dict[str, str] = {}
    absent = []
    for package in packages:
        try:
            texts[package.sha256] = _cached(store, package).read_text(encoding="utf-8")
        except FileNotFoundError:
            absent.append(package)
    if absent:
        # dpkg-deb decompresses: one a core.
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            read = pool.map(lambda package: _read(store, package), absent)
            texts |= {package.sha256: text for package, text in zip(absent, read, strict=True)}
    return [texts[package.sha256] for package in packages]


def _cached(store: PackageStore, package: LockedPackage) -> Path:
    return store.path(package).with_suffix(".control")


def _read(store: PackageStore, package: LockedPackage) -> str:
    """The control fields of a deb, which are cached beside it."""
    deb = store.path(package)
    if not store.has(package):
        raise CellblockError(
            f"the store has no {package.name} {package.version} ({deb})",
            hint="it was removed meanwhile; run this again",
        )
    done = subprocess.run(["dpkg-deb", "--field", str(deb)], capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout.startswith("Package: "):
        raise CellblockError(
            f"{deb}: dpkg-deb cannot read {package.name} {package.version}: {done.stderr.strip()}",
            hint="`build.py cache check` finds debs that the disk has damaged",
        )
    text = done.stdout.rstrip("\n") + "\n"
    durable.replace(_cached(store, package), text)
    return text
