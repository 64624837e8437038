"""What upgrade and verify of a jail volume cost, beside `find` and `sha256sum` over the same tree.

All times are wall clock, warm (each is run before it is timed), the best of several runs: other work on
the machine only adds to them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cellblock.events import Event, Events, StepFinished
from cellblock.jail import Volume, assemble, manifest
from cellblock.jail.rollback import rollback
from cellblock.jail.upgrade import upgrade
from cellblock.jail.verify import verify

_RUNS = 5
_PERCENT = 100
"""One file in so many is another in the image that is upgraded to."""

_MANIFEST_FILES = 5_000_000


@dataclass(frozen=True)
class UpgradeCost:
    """Times in seconds; `memory_mb` is the peak of comparing two made-up manifests of 5 million files."""

    files: int
    bytes: int
    find: float
    noop: float
    rebuilt: float
    rebuilt_without_reading: float
    one_percent: float
    one_percent_without_reading: float
    sha256sum: float
    verify: float
    verify_content: float
    memory_mb: float

    def keys(self) -> dict[str, float]:
        """As `build.py bench volume --json` prints them."""
        return {
            "noop_upgrade_vs_find": round(self.noop / self.find, 3),
            "rebuilt_upgrade_vs_find": round(self.rebuilt_without_reading / self.find, 3),
            "one_percent_upgrade_vs_find": round(self.one_percent_without_reading / self.find, 3),
            "verify_vs_sha256sum": round(self.sha256sum / self.verify_content, 3),
            "verify_metadata_vs_find": round(self.verify / self.find, 3),
            "upgrade_memory_5m_mb": round(self.memory_mb, 1),
            "find_s": round(self.find, 3),
            "noop_upgrade_s": round(self.noop, 3),
            "rebuilt_upgrade_s": round(self.rebuilt, 3),
            "one_percent_upgrade_s": round(self.one_percent, 3),
            "sha256sum_s": round(self.sha256sum, 3),
            "verify_content_s": round(self.verify_content, 3),
        }


def upgrade_cost(tree: Path, work: Path, *, memory: bool = True) -> UpgradeCost:
    """Measure with the root directory `tree`; `work` is a folder for tars and volumes, of its size thrice."""
    images = _Images(tree, work)
    volume = work / "upgrade-volume"
    assemble(str(images.old), volume, Events())
    root = volume / "root"
    find = _best(lambda: _run(["find", str(volume), "-printf", "%s %T@ %C@\\n"]))
    noop = _best(lambda: upgrade(str(images.old), volume, Events()))
    content = _best(lambda: verify(volume, Events(), content=True), runs=2)
    metadata = _best(lambda: verify(volume, Events()))
    names = work / "names"
    with names.open("wb") as file:
        subprocess.run(["find", str(root), "-type", "f", "-print0"], stdout=file, check=True)
    processors = len(os.sched_getaffinity(0))
    hashing = f"xargs -0 -P {processors} -n 200 sha256sum <{names} >/dev/null"
    sums = _best(lambda: _run(["sh", "-c", hashing]), runs=2)
    rebuilt = _upgrade(images.rebuilt, volume)
    rollback(volume, Events())
    one_percent = _upgrade(images.one_percent, volume)
    state = Volume(volume).state()
    assert state is not None
    result = UpgradeCost(
        state.entries,
        state.bytes,
        find,
        noop,
        *rebuilt,
        *one_percent,
        sums,
        metadata,
        content,
        _memory(work) if memory else 0.0,
    )
    shutil.rmtree(volume)
    return result


class _Images:
    """Tars: of the tree, of the same with other bytes around it, and with one file in a hundred changed."""

    def __init__(self, tree: Path, work: Path) -> None:
        self.old, self.rebuilt, self.one_percent = (work / f"{name}.tar" for name in ("old", "same", "new"))
        subprocess.run(["tar", *_TAR, "-cf", str(self.old), "-C", str(tree), "."], check=True)
        blocking = ["--blocking-factor=64"]
        subprocess.run(["tar", *_TAR, *blocking, "-cf", str(self.rebuilt), "-C", str(tree), "."], check=True)
        changed = work / "changed"
        subprocess.run(["cp", "-a", "--reflink=auto", str(tree), str(changed)], check=True)
        files = sorted(path for path in changed.rglob("*") if path.is_file() and not path.is_symlink())
        for path in files[::_PERCENT]:
            with path.open("ab") as file:
                file.write(b"changed")
        subprocess.run(["tar", *_TAR, "-cf", str(self.one_percent), "-C", str(changed), "."], check=True)
        shutil.rmtree(changed)


_TAR = ("--format=pax", "--xattrs", "--xattrs-include=*", "--numeric-owner")


def _upgrade(source: Path, volume: Path) -> tuple[float, float]:
    """Seconds of an upgrade, and of it without reading the source."""
    reading = 0.0

    def listen(event: Event) -> None:
        nonlocal reading
        if isinstance(event, StepFinished) and event.step == "read the source":
            reading = event.seconds

    events = Events()
    events.subscribe(listen)
    started = time.perf_counter()
    upgrade(str(source), volume, events)
    total = time.perf_counter() - started
    return total, total - reading


def _best(action: Callable[[], object], runs: int = _RUNS) -> float:
    action()
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)


def _run(command: list[str]) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


_MEMORY = """
import resource, sys
from pathlib import Path
from cellblock.jail import catalogue, delta
old, new = Path(sys.argv[1]), Path(sys.argv[2])
known = catalogue.KnownDigests(old)
found = delta.compare(old, new)
print(len(found), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def _memory(work: Path, files: int = _MANIFEST_FILES) -> float:
    """Peak memory, in MB, of the comparison of two manifests of `files` that differ in one in a thousand."""
    for name, step in (("old", 0), ("new", 1000)):
        _write_manifest(work / f"{name}.manifest", files, step)
    command = [sys.executable, "-c", _MEMORY, str(work / "old.manifest"), str(work / "new.manifest")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    for name in ("old", "new"):
        (work / f"{name}.manifest").unlink()
    return int(done.stdout.split()[1]) * 1024 / 1e6


def _write_manifest(path: Path, files: int, step: int) -> None:
    """A manifest of `files` in folders of a thousand; one in `step` has another content (0: none)."""
    total, count = hashlib.sha256(manifest.HEADER), 0
    with path.open("wb") as out:
        out.write(manifest.HEADER)
        for folder in range(-(-files // 1000)):
            lines = [b"d 755 0 0 0 1700000000000000000 - - d%06d\n" % folder]
            for number in range(min(1000, files - folder * 1000)):
                index = folder * 1000 + number
                changed = 1 if step and index % step == 0 else 0
                digest = b"%032x%032x" % (index * 0x9E3779B97F4A7C15 % 2**128, changed)
                lines.append(
                    b"f 644 0 0 4096 1700000000000000000 %s - d%06d/f%03d\n" % (digest, folder, number)
                )
            text = b"".join(lines)
            total.update(text)
            out.write(text)
            count += len(lines)
        out.write(b"end %d %s\n" % (count, total.hexdigest().encode()))
