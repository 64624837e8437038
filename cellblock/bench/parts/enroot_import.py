# SPDX-License-Identifier: Apache-2.0
"""Measures the import of a container image into an image file, beside other programs that make one.

Each import is cold: nothing of the image is in enroot's cache. The registry's files are in the page cache for
all of them.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from cellblock import paths
from cellblock.bench.harness.registry import registry
from cellblock.bench.inputs.import_images import SHAPES, layout
from cellblock.errors import CellblockError
from cellblock.events import Events, Progress

ROUNDS = {"base": 5, "big": 2}
CACHED_ROUNDS = 5
_IMPORTER = "importer/enroot-image"


@dataclass(frozen=True)
class ImportFigures:
    """Seconds, by image; megabytes (10^6 bytes) of memory at most."""

    cold: dict[str, tuple[float, ...]]
    cached: tuple[float, ...]
    peak_mb: float
    unpacked: dict[str, float]
    """skopeo copy to a layout, umoci unpack, mksquashfs with lz4, as ours."""
    pulled: dict[str, float]
    """podman pull, which unpacks, and makes no image."""

    def keys(self) -> dict[str, float | None]:
        """For `build.py bench enroot --json`."""
        return {
            "import_base_s": round(statistics.median(self.cold["base"]), 2),
            "import_big_s": round(statistics.median(self.cold["big"]), 2),
            "import_cached_s": round(statistics.median(self.cached), 3),
            "import_peak_mb": round(self.peak_mb),
            **{f"umoci_mksquashfs_{name}_s": round(value, 2) for name, value in self.unpacked.items()},
            **{f"podman_pull_{name}_s": round(value, 2) for name, value in self.pulled.items()},
        }


def import_cost(folder: Path, events: Events) -> ImportFigures:
    """Measure in `folder`, which needs 5 GB.

    Raises CellblockError when a tool is missing or a command fails.
    """
    for tool in ("docker-registry", "skopeo", "umoci", "podman", "mksquashfs", "make", "gcc"):
        if not shutil.which(tool):
            raise CellblockError(f"{tool} is not installed", hint=f"apt-get install {tool}")
    compile_importer(folder, events)
    with events.step("images", "two images to import, made once"):
        layout()
    names = [shape.name for shape in SHAPES]
    with registry(folder, names) as host, events.step("import", "from a registry on this machine"):
        return _import_all(folder, host, events)


def compile_importer(folder: Path, events: Events) -> Path:
    """The program enroot-image in `folder`. Raises CellblockError."""
    with events.step("compile", "enroot-image"):
        sources = paths.PROJECT / "enroot/importing"
        _measure(["make", "-s", "-j2", "-C", str(sources), f"BUILD={folder / 'importer'}"])
    return folder / _IMPORTER


def _import_all(folder: Path, host: str, events: Events) -> ImportFigures:
    program = str(folder / _IMPORTER)
    cold: dict[str, list[float]] = {}
    cached, peaks = [], []
    unpacked, pulled = {}, {}
    for shape in SHAPES:
        uri, output = f"docker://{host}#bench/{shape.name}:1", folder / f"{shape.name}.sqsh"
        command = [program, "import", "--output", str(output), uri]
        # The peers between the rounds: a machine that becomes slower becomes so for all.
        for i in range(ROUNDS[shape.name]):
            shutil.rmtree(folder / "cache", ignore_errors=True)
            output.unlink(missing_ok=True)
            seconds, peak = _measure(command, folder)
            cold.setdefault(shape.name, []).append(seconds)
            peaks.append(peak)
            events.emit(Progress("import", i + 1, ROUNDS[shape.name], shape.name))
            if i == 0:
                unpacked[shape.name] = _unpack(folder, host, shape.name)
                pulled[shape.name] = _pull(folder, host, shape.name)
        for _ in range(CACHED_ROUNDS):
            output.unlink()
            cached.append(_measure(command, folder)[0])
        output.unlink()
    return ImportFigures(
        cold={name: tuple(values) for name, values in cold.items()},
        cached=tuple(cached),
        peak_mb=max(peaks) / 1e6,
        unpacked=unpacked,
        pulled=pulled,
    )


def _unpack(folder: Path, host: str, name: str) -> float:
    work = folder / "peer"
    work.mkdir()
    options = ["-all-root", "-noappend", "-quiet", "-no-progress", "-comp", "lz4"]
    source = f"docker://{host}/bench/{name}:1"
    seconds = sum(
        _measure(command)[0]
        for command in (
            ["skopeo", "copy", "--src-tls-verify=false", source, f"oci:{work}/layout:x"],
            ["umoci", "unpack", "--image", f"{work}/layout:x", f"{work}/bundle"],
            ["mksquashfs", f"{work}/bundle/rootfs", f"{work}/image.sqsh", *options],
        )
    )
    shutil.rmtree(work)
    return seconds


def _pull(folder: Path, host: str, name: str) -> float:
    store = [f"--root={folder}/podman", f"--runroot={folder}/podman-run", "--storage-driver=overlay"]
    command = ["podman", *store, "pull", "--quiet", "--tls-verify=false", f"{host}/bench/{name}:1"]
    seconds = _measure(command)[0]
    _measure(["podman", *store, "rmi", "--all", "--force"])
    return seconds


def _measure(command: list[str], home: Path | None = None) -> tuple[float, float]:
    """Seconds that it takes, and bytes of memory that it needs at most."""
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(home or Path.home())}
    if home:
        environment |= {
            "ENROOT_SYSCONF_PATH": str(home / "none"),
            "ENROOT_CACHE_PATH": str(home / "cache"),
            "ENROOT_TEMP_PATH": str(home),
        }
    began = time.perf_counter()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    if process.returncode:
        what = " ".join(command[:3])
        raise CellblockError(
            f"{what} ended with status {process.returncode}: {said.strip()}",
            hint="correct what it says, then run the benchmark again",
        )
    return seconds, usage.ru_maxrss * 1024
