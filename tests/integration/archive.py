# SPDX-License-Identifier: Apache-2.0
"""Makes an unsigned apt archive of real packages in a folder, under another suite's name.

Ubuntu's archive cannot be reached from every machine that runs the tests. What an Ubuntu variant does
differently (suite, components, mirror, keyring, release check) is exercised against this one.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from cellblock.build.mirrors import archive
from cellblock.files.sha256 import sha256_of_file
from cellblock.machine.host import host_release
from cellblock.paths import PROJECT
from cellblock.variants import load_variants

HAS_A_MIRROR = pytest.mark.skipif(
    host_release().get("ID") != "debian",
    reason="the local archive is filled from this machine's own Debian mirror, and it has none",
)


def private_apt(folder: Path, lines: Iterable[str], *options: str) -> list[str]:
    """An apt-get that has only `lines` for sources and lies in `folder`, as if nothing were installed."""
    for directory in ("lists/partial", "archives/partial"):
        (folder / directory).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text("".join(f"{line}\n" for line in lines))
    own = (
        f"Dir::State={folder}",
        f"Dir::State::status={folder}/status",
        f"Dir::Cache={folder}",
        f"Dir::Etc::sourcelist={folder}/sources.list",
        "Dir::Etc::sourceparts=/dev/null",
        "APT::Sandbox::User=root",
        "Acquire::Languages=none",
    )
    return ["apt-get", "-qq", *(f"-o{option}" for option in (*own, *options))]


def make_archive(
    folder: Path,
    *,
    suite: str,
    components: tuple[str, ...],
    packages: tuple[str, ...],
    debs: Iterable[Path] = (),
) -> str:
    """Fill `folder` with the closure of `packages` from Debian 13, and `debs`; returns its sources.list line.

    All packages are in the first component, the others are empty.
    """
    pool = folder / "pool"
    _fetch(folder / "apt", pool, packages)
    for deb in debs:
        shutil.copy(deb, pool)
    index = subprocess.run(
        ["dpkg-scanpackages", "--multiversion", "pool"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for component in components:
        binary = folder / "dists" / suite / component / "binary-amd64"
        binary.mkdir(parents=True)
        text = index if component == components[0] else ""
        (binary / "Packages").write_text(text)
        (binary / "Packages.gz").write_bytes(gzip.compress(text.encode()))
    release = folder / "dists" / suite / "Release"
    files = sorted((folder / "dists" / suite).rglob("Packages*"))
    sums = [
        f" {sha256_of_file(path)} {path.stat().st_size} {path.relative_to(folder / 'dists' / suite)}"
        for path in files
    ]
    release.write_text(
        f"Origin: cellblock-test\nSuite: {suite}\nCodename: {suite}\nArchitectures: amd64\n"
        f"Components: {' '.join(components)}\nSHA256:\n" + "\n".join(sums) + "\n"
    )
    return f"deb [trusted=yes] file://{folder} {suite} {' '.join(components)}"


def _fetch(apt: Path, pool: Path, packages: tuple[str, ...]) -> None:
    """Download the closure of `packages` and of the essential set as if nothing were installed."""
    lines = archive(load_variants(PROJECT / "images" / "variants.yaml")["debian13"]).lines
    # The tests' host is a Debian whose own mirror is known; mmdebstrap's default is not ours to repeat.
    assert lines, "this machine's apt sources name no mirror of Debian"
    options = (
        "APT::Install-Recommends=false",
        "DPkg::Pre-Install-Pkgs=",
        "APT::Update::Post-Invoke=",
        "APT::Update::Post-Invoke-Success=",
    )
    command = [*private_apt(apt, lines, *options), "--yes"]
    subprocess.run([*command, "update"], check=True, capture_output=True)
    install = [*command, "install", "--download-only", "?essential", *packages]
    subprocess.run(install, check=True, capture_output=True)
    pool.mkdir()
    for path in (apt / "archives").glob("*.deb"):
        path.rename(pool / path.name)
