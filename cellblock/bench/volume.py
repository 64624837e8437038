# SPDX-License-Identifier: Apache-2.0
"""Measures assembling a jail volume, beside other ways to fill a directory.

The tree has at least 45,000 files and 1.4 GB of this machine's /usr. It is read as a directory, a plain tar,
an OCI layout of one zstd layer, and a restic repository. Each way writes to the same filesystem: `jail
assemble` and tar in every round, the others twice after the last round. Between runs the disk is flushed,
which is not timed, because `tar -x` does not wait for the disk. The time of `jail assemble` includes its own
flush.

On a virtual machine the first use of memory can be slow: one tar took 7 seconds with memory used before and
15 to 18 without. So the first round is thrown away, and the figure against tar is the median of the rounds'
ratios.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from cellblock.bench.harness.slow_fs import slow_filesystem
from cellblock.bench.inputs.volume_sources import TAR, Layout, assemble_command, make_sources, make_tree
from cellblock.bench.parts.volume_small_files import small_files_cost
from cellblock.bench.parts.volume_upgrade import UpgradeCost, upgrade_cost
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.privilege import require_root

SLOW_FILES = 600


@dataclass
class VolumeCost:
    """Seconds of each way, by round, those of `tar` and of `assemble` in the same order.

    `beside`: of an assembly after, then before each of the other ways, which are measured twice.
    `slow`: with 1 ms a call; `small`: of many small files; `later`: of a volume that is there.
    """

    files: int
    bytes: int
    times: dict[str, list[float]] = field(default_factory=dict)
    beside: dict[str, list[float]] = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)
    small: dict[str, list[float]] = field(default_factory=dict)
    later: UpgradeCost | None = None
    seconds: float = 0.0

    def keys(self) -> dict[str, float | int | None]:
        """The figures by the names that others rely on; None where a program is not here."""
        found: dict[str, float | int | None] = {"files": self.files, "bytes": self.bytes}
        for name, times in self.times.items():
            found[f"{name}_s"] = round(statistics.median(times), 2)
        for other in ("tar", "tar_flushed", "rsync", "unpack_and_cp", "restic"):
            found[f"assemble_vs_{other}"] = self._ratio("assemble", other)
        for name, seconds in self.slow.items():
            found[f"slow_{name}_s"] = round(seconds, 2)
        for name, times in self.small.items():
            found[f"small_{name}_s"] = round(statistics.median(times), 2)
        for other in ("tar", "tar_flushed") if self.small else ():
            pairs = zip(self.small["assemble"], self.small[other], strict=True)
            found[f"small_assemble_vs_{other}"] = round(statistics.median(a / b for a, b in pairs), 3)
        ours, theirs = self.slow.get("assemble"), self.slow.get("rsync")
        found["slow_fs_vs_rsync"] = round(ours / theirs, 4) if ours and theirs else None
        if self.later is not None:
            found.update(self.later.keys())
        return found

    def _ratio(self, ours: str, theirs: str) -> float | None:
        if ours not in self.times or theirs not in self.times:
            return None
        ours_s = self.beside.get(theirs, self.times[ours])
        return round(statistics.median(a / b for a, b in zip(ours_s, self.times[theirs], strict=True)), 3)


def volume_cost(events: Events, *, rounds: int) -> VolumeCost:
    """Measure, in `rounds` and one more that is not counted. Takes twelve minutes, and 8 GB below /var/tmp.

    Raises CellblockError.
    """
    require_root("this measures what only root can write")
    began = time.monotonic()
    with TemporaryDirectory(dir="/var/tmp", prefix="cellblock-bench-") as folder:
        work = Path(folder)
        with events.step("volume", "make the tree"):
            files, size = make_tree(work / "tree")
            layout = make_sources(work / "tree", work)
        cost = VolumeCost(files, size)
        with events.step("volume", "1 ms a call"):
            cost.slow = _slow(work, SLOW_FILES)
        cost.small = small_files_cost(work, rounds, events)
        ways = _ways(work, layout)
        volume = work / "volume"
        for number in range(rounds + 1):
            for name in ("tar", "assemble"):
                with events.step("volume", f"{name}, round {number}" if number else f"{name}, not counted"):
                    kept = volume if name == "assemble" and number == rounds else None
                    seconds, flushed = _timed(ways[name], work / "target", kept)
                if not number:
                    continue
                cost.times.setdefault(name, []).append(seconds)
                if name == "tar":
                    cost.times.setdefault("tar_flushed", []).append(flushed)
        with events.step("volume", "upgrade and verify"):
            cost.later = upgrade_cost(volume, work, layout)
        # In pairs, for a disk can be three times as slow some minutes later.
        for name in sorted(set(ways) - {"tar", "assemble"}):
            for way in (name, "assemble", "assemble", name):
                with events.step("volume", f"{way}, beside {name}" if way == "assemble" else name):
                    seconds, _ = _timed(ways[way], work / "target")
                (cost.beside if way == "assemble" else cost.times).setdefault(name, []).append(seconds)
        cost.seconds = time.monotonic() - began
    return cost


def _ways(work: Path, layout: Layout) -> dict[str, Callable[[Path], object]]:
    tar, layer = str(work / "tree.tar"), layout.largest()

    def run(*command: str, env: dict[str, str] | None = None) -> None:
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})})
        if done.returncode:
            raise CellblockError(
                f"{' '.join(command)}: {done.stderr.strip()[-1000:]}",
                hint="correct what it says, then run the benchmark again",
            )

    def untar(target: Path) -> None:
        run(*TAR, "-C", str(target), "-xf", tar)

    def unpack_and_cp(target: Path) -> None:
        (target / "unpacked").mkdir()
        run(*TAR, "-C", str(target / "unpacked"), "--zstd", "-xf", str(layer))
        run("cp", "-a", str(target / "unpacked"), str(target / "copied"))

    ways: dict[str, Callable[[Path], object]] = {
        "assemble": lambda target: run(*assemble_command(f"oci:{layout.folder}:old", target)),
        "tar": untar,
        "unpack_and_cp": unpack_and_cp,
    }
    if shutil.which("rsync"):
        ways["rsync"] = lambda target: run("rsync", "-aHAX", f"{work / 'tree'}/", f"{target}/")
    if shutil.which("restic"):
        ways["restic"] = lambda target: run(
            *("restic", "-q", "-r", str(work / "repository"), "--no-cache", "restore", "latest"),
            *("--target", str(target)),
            env={"RESTIC_PASSWORD": "bench"},
        )
    return ways


def _timed(run: Callable[[Path], object], target: Path, kept: Path | None = None) -> tuple[float, float]:
    """Seconds, without and with flushing what was written. It is removed, or becomes `kept`."""
    target.mkdir()
    os.sync()
    began = time.monotonic()
    run(target)
    seconds = time.monotonic() - began
    os.sync()
    flushed = time.monotonic() - began
    if kept is not None:
        target.rename(kept)
    else:
        shutil.rmtree(target)
        os.sync()
    return seconds, flushed


def _slow(work: Path, files: int) -> dict[str, float]:
    """Part of the tree, to a filesystem on which each call takes a millisecond."""
    part = work / "part"
    listed = [path for path in sorted((work / "tree").rglob("*")) if path.is_file() and not path.is_symlink()]
    for path in listed[:: max(1, len(listed) // files)][:files]:
        place = part / path.relative_to(work / "tree")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place)
    subprocess.run([*TAR, "-C", str(part), "-cf", str(work / "part.tar"), "."], check=True)
    Layout(work / "part-layout").add("part", work / "part.tar")
    times = {}
    with ExitStack() as mounted:
        folder = work / "slow"
        folder.mkdir()
        place = mounted.enter_context(slow_filesystem(folder))
        commands = {"assemble": assemble_command(f"oci:{work / 'part-layout'}:part", place / "volume")}
        if shutil.which("rsync"):
            commands["rsync"] = ["rsync", "-aHAX", f"{part}/", f"{place / 'rsync'}/"]
        for name, command in commands.items():
            began = time.monotonic()
            subprocess.run(command, check=True, capture_output=True)
            times[name] = time.monotonic() - began
    return times
