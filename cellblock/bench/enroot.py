# SPDX-License-Identifier: Apache-2.0
"""Measures the container runtime: starting a container from a root and from an image file, creating a root.

The image has the size of a big one for machine learning (docs/benchmarks.md), made of this machine's own
programs. parts/enroot_import.py measures the import.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cellblock import paths
from cellblock.bench.harness.percentile import percentile
from cellblock.bench.harness.scratch import scratch
from cellblock.bench.parts.enroot_import import ImportFigures, compile_importer, import_cost
from cellblock.bench.peers.container_peers import RuntimeCost, peers_cost
from cellblock.errors import CellblockError
from cellblock.events import Events, Progress

BIG_FILES = 51_000
BIG_BYTES = 1_500_000_000
"""Files and bytes of the big image: those of the published figures of enroot (docs/benchmarks.md)."""

LARGEST = 64_000_000
"""No single file is larger: a few debug files would be most of the image."""

CREATE_ROUNDS = 4
WARM_UP = 3
"""Starts that are not counted: the first reads the image's shell from the disk."""


@dataclass(frozen=True)
class EnrootFigures:
    """Measured on one machine; times in ms and s."""

    files: int
    image_bytes: int
    start_ms: tuple[float, ...]
    start_sqsh_ms: tuple[float, ...]
    create_s: tuple[float, ...]
    unsquashfs_s: tuple[float, ...]
    imports: ImportFigures | None
    """None: not measured."""
    seconds: float
    peers: Mapping[str, RuntimeCost] = field(default_factory=dict)
    """Ours and others, by name; empty: not measured."""

    def keys(self) -> dict[str, float | None]:
        """The keys that `build.py bench enroot --json` prints; None where import was left out."""
        names = ("import_base_s", "import_big_s", "import_cached_s", "import_peak_mb")
        return {
            **(self.imports.keys() if self.imports else dict.fromkeys(names)),
            "start_ms": round(percentile(self.start_ms, 50), 2),
            "start_ms_p99": round(percentile(self.start_ms, 99), 2),
            "start_sqsh_ms": round(percentile(self.start_sqsh_ms, 50), 2),
            "start_sqsh_ms_p99": round(percentile(self.start_sqsh_ms, 99), 2),
            "create_vs_unsquashfs": round(
                statistics.median(self.create_s) / statistics.median(self.unsquashfs_s), 3
            ),
            "create_s": round(statistics.median(self.create_s), 2),
            "image_files": self.files,
            "image_mb": round(self.image_bytes / 1e6),
            **{key: value for name, one in self.peers.items() for key, value in one.keys(name).items()},
        }


def enroot_cost(runs: int, events: Events, *, imports: bool = True, peers: bool = False) -> EnrootFigures:
    """Compile enroot, make the image, and measure `runs` starts of each kind; with `peers`, others too.

    Needs gcc, squashfs-tools and squashfuse. Raises CellblockError when one is missing or a command fails.
    """
    for tool in ("gcc", "make", "mksquashfs", "unsquashfs", "squashfuse"):
        if not shutil.which(tool):
            raise CellblockError(
                f"{tool} is not installed", hint="apt-get install squashfs-tools squashfuse gcc make"
            )
    began = time.monotonic()
    with scratch() as folder:
        program = _compile(folder, events)
        with events.step("image", "an image of this machine's own programs"):
            image = folder / "big.sqsh"
            files = _make_image(image)
        environment = _environment(folder)
        with events.step("create", f"{CREATE_ROUNDS} rounds of create and of unsquashfs"):
            create, unsquashfs = _creates(program, image, folder, environment)
        with events.step("start", f"{runs} starts of each kind"):
            started = _starts(program, "big", runs, environment, events)
            from_image = _starts(program, str(image), runs, environment, events)
        image_bytes = image.stat().st_size
        shutil.rmtree(folder / "data")
        image.unlink()
        imported = import_cost(folder, events) if imports else None
        others = peers_cost(program, compile_importer(folder, events), events) if peers else {}
        return EnrootFigures(
            files=files,
            image_bytes=image_bytes,
            start_ms=started,
            start_sqsh_ms=from_image,
            create_s=create,
            unsquashfs_s=unsquashfs,
            imports=imported,
            seconds=time.monotonic() - began,
            peers=others,
        )


def _environment(folder: Path) -> dict[str, str]:
    """The defaults, and nothing of this machine's configuration."""
    for name in ("data", "run", "etc"):
        (folder / name).mkdir()
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(folder),
        "ENROOT_SYSCONF_PATH": str(folder / "etc"),
        "ENROOT_DATA_PATH": str(folder / "data"),
        "ENROOT_RUNTIME_PATH": str(folder / "run"),
    }


def _run(command: list[str], environment: dict[str, str] | None = None) -> float:
    """Seconds that it takes."""
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise CellblockError(
            f"{' '.join(command[:3])} ended with status {done.returncode}: {done.stderr.strip()}",
            hint="correct what it says, then run the benchmark again",
        )
    return seconds


def _compile(folder: Path, events: Events) -> Path:
    with events.step("compile", "enroot"):
        _run(["make", "-s", "-C", str(paths.PROJECT / "enroot"), f"BUILD={folder / 'build'}"])
    return folder / "build/enroot"


def _chosen() -> Iterator[Path]:
    """What a shell needs first, then all of /usr."""
    for name in ("bin", "sbin", "lib", "lib64", "lib32", "libx32"):
        if Path("/", name).is_symlink():
            yield Path("/", name)
    yield from (Path("/etc/passwd"), Path("/etc/group"), Path("/etc/login.defs"))
    yield from _programs("true", "sh", "bash")
    triplets = [path for path in Path("/usr/lib").glob("*-linux-gnu") if path.is_dir()]
    for top in (Path("/usr/bin"), Path("/usr/lib64"), *triplets, Path("/usr")):
        for folder, folders, names in os.walk(top):
            folders.sort()
            yield from (Path(folder, name) for name in sorted(names))


def _programs(*names: str) -> Iterator[Path]:
    """Programs of these names, and the libraries that they load."""
    for name in names:
        program = Path("/usr/bin", name)
        listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
        libraries = (Path(found) for found in re.findall(r"(/\S+) \(0x", listed))
        for path in (program, *libraries):
            real = path.resolve()
            # By the name that is asked for, below /usr, where the links of the root lead to.
            yield path if path.is_relative_to("/usr") else Path("/usr", path.relative_to("/"))
            yield real


def _make_image(image: Path) -> int:
    """An image of this machine's own programs as squashfs.

    Returns how many files are in it. Raises CellblockError when mksquashfs fails.
    """
    root = image.with_suffix(".root")
    n = total = 0
    for path in _chosen():
        target = root / path.relative_to("/")
        size = path.lstat().st_size if os.path.lexists(path) else 0
        if size > LARGEST or os.path.lexists(target):
            continue
        if total + size > BIG_BYTES or n == BIG_FILES:
            break
        target.parent.mkdir(parents=True, exist_ok=True)
        if _take(path, target):
            n, total = n + 1, total + size
    # A tree and not a list of names: mksquashfs reads lists of tens of thousands for minutes.
    command = ["mksquashfs", str(root), str(image), "-all-root", "-noappend", "-quiet", "-no-progress"]
    _run([*command, "-comp", "zstd", "-Xcompression-level", "1"])
    shutil.rmtree(root)
    return n


def _take(path: Path, target: Path) -> bool:
    """The same file at another place; by a link, or as a copy where that is another file system."""
    try:
        os.link(path, target, follow_symlinks=False)
    except OSError:
        try:
            shutil.copy2(path, target, follow_symlinks=False)
        except OSError:
            return False
    return True


def _creates(
    program: Path, image: Path, folder: Path, environment: dict[str, str]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of each round, in turns: each is first as often as the other. The container `big` stays.

    A virtual machine hands memory that is free back to its host, and who touches it first pays for getting
    it again: of the same program, some rounds took four times as long as others. So one round is thrown away.
    Without sync(2), which on a machine with other writers waits for all of theirs.
    """
    times: dict[bool, list[float]] = {True: [], False: []}
    target, root = folder / "unsquashfs", folder / "data/big"
    commands = {
        True: [str(program), "create", "-n", "big", str(image)],
        False: ["unsquashfs", "-quiet", "-no-progress", "-dest", str(target), str(image)],
    }
    for number in range(CREATE_ROUNDS + 1):
        for ours in (True, False) if number % 2 else (False, True):
            for old in (target, root):
                if old.exists():
                    shutil.rmtree(old)
            times[ours].append(_run(commands[ours], environment))
    if not root.exists():
        _run(commands[True], environment)
    return tuple(times[True][1:]), tuple(times[False][1:])


def _starts(
    program: Path, name: str, runs: int, environment: dict[str, str], events: Events
) -> tuple[float, ...]:
    """Milliseconds of `enroot start NAME true`, with the fork and the exec of it."""
    found = []
    for i in range(runs + WARM_UP):
        seconds = _run([str(program), "start", name, "true"], environment)
        if i >= WARM_UP:
            found.append(seconds * 1000)
            events.emit(Progress("start", i - WARM_UP + 1, runs, "starts"))
    return tuple(found)
