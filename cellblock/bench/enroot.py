"""What the container runtime costs: a start from a created root and from an image file, and a create.

All of one image the size of a big one for machine learning (docs/benchmarks.md), made of this machine's own
programs. Figures of `import` belong into `EnrootFigures` as well and come with it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cellblock import paths
from cellblock.bench.percentile import percentile
from cellblock.bench.scratch import scratch
from cellblock.errors import CellblockError
from cellblock.events import Events, Progress

BIG_FILES = 51_000
BIG_BYTES = 1_500_000_000
"""The big image of the figures that ours are compared with (design/containers.md, section 3)."""

CREATE_ROUNDS = 3
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
    seconds: float

    def keys(self) -> dict[str, float | None]:
        """The keys that `build.py bench enroot --json` prints; those of import are None so far."""
        return {
            "import_base_s": None,
            "import_big_s": None,
            "import_cached_s": None,
            "import_peak_mb": None,
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
        }


def enroot_cost(runs: int, events: Events) -> EnrootFigures:
    """Compile enroot, make the image, and measure `runs` starts of each kind.

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
        return EnrootFigures(
            files=files,
            image_bytes=image.stat().st_size,
            start_ms=started,
            start_sqsh_ms=from_image,
            create_s=create,
            unsquashfs_s=unsquashfs,
            seconds=time.monotonic() - began,
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
            f"{' '.join(command[:3])} ended with status {done.returncode}: {done.stderr.strip()}"
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
    triplets = [path for path in Path("/usr/lib").glob("*-linux-gnu") if path.is_dir()]
    for top in (Path("/usr/bin"), Path("/usr/lib64"), *triplets, Path("/usr")):
        for folder, folders, names in os.walk(top):
            folders.sort()
            yield from (Path(folder, name) for name in sorted(names))


def _make_image(image: Path) -> int:
    """Returns how many files are in it."""
    names: dict[Path, None] = {}
    total = 0
    for path in _chosen():
        if path in names:
            continue
        try:
            size = path.lstat().st_size
        except OSError:
            continue
        if total + size > BIG_BYTES:
            continue
        names[path] = None
        total += size
        if len(names) == BIG_FILES:
            break
    command = [
        "mksquashfs",
        "-",
        str(image),
        "-cpiostyle0",
        "-all-root",
        "-noappend",
        "-quiet",
        "-no-progress",
    ]
    command += ["-comp", "zstd", "-Xcompression-level", "1"]
    done = subprocess.run(
        command,
        input=b"\0".join(os.fsencode(path.relative_to("/")) for path in names),
        capture_output=True,
        cwd="/",
    )
    if done.returncode:
        raise CellblockError(
            f"mksquashfs ended with status {done.returncode}: {done.stderr.decode(errors='replace')}"
        )
    return len(names)


def _creates(
    program: Path, image: Path, folder: Path, environment: dict[str, str]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of each round; interleaved, so that both meet the same disk. The container `big` stays."""
    ours, theirs = [], []
    for _ in range(CREATE_ROUNDS):
        target = folder / "unsquashfs"
        os.sync()
        theirs.append(_run(["unsquashfs", "-quiet", "-no-progress", "-dest", str(target), str(image)]))
        shutil.rmtree(target)
        if (folder / "data/big").exists():
            shutil.rmtree(folder / "data/big")
        os.sync()
        ours.append(_run([str(program), "create", "-n", "big", str(image)], environment))
    return tuple(ours), tuple(theirs)


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
