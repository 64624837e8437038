# SPDX-License-Identifier: Apache-2.0
"""Measures upgrade and verify of a jail volume, beside `find` and `sha256sum` over the same tree.

Times are wall clock of whole commands, including Python's start. Each command runs once untimed. The best of
several runs counts, because other work on the machine only makes them slower.
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
from functools import partial
from pathlib import Path

from cellblock.bench.inputs.volume_sources import TAR, Layout
from cellblock.errors import CellblockError
from cellblock.jail.tree import manifest

_RUNS = 5
_PERCENT = 100
"""One file in so many is another in the image that is upgraded to."""
_MANIFEST_FILES = 5_000_000


@dataclass(frozen=True)
class UpgradeCost:
    """Times in seconds; `memory_mb` is the peak of comparing two made-up manifests of millions of files.

    `noop`: to the image that is there. `rebuilt`: to another image of the same files. `one_percent`: to one
    with a layer of changed files more; `write` is what tar and a flush take to write these.
    """

    find: float
    noop: float
    rebuilt: float
    one_percent: float
    write: float
    sha256sum: float
    verify: float
    verify_content: float
    memory_mb: float

    def keys(self) -> dict[str, float | int | None]:
        """As `build.py bench volume --json` prints them."""
        return {
            "noop_upgrade_vs_find": round(self.noop / self.find, 3),
            "rebuilt_upgrade_vs_find": round(self.rebuilt / self.find, 3),
            "one_percent_upgrade_vs_find": round((self.one_percent - self.write) / self.find, 3),
            "verify_vs_sha256sum": round(self.sha256sum / self.verify_content, 3),
            "verify_metadata_vs_find": round(self.verify / self.find, 3),
            "upgrade_memory_5m_mb": round(self.memory_mb, 1),
            "find_s": round(self.find, 3),
            "noop_upgrade_s": round(self.noop, 3),
            "rebuilt_upgrade_s": round(self.rebuilt, 3),
            "one_percent_upgrade_s": round(self.one_percent, 3),
            "one_percent_write_s": round(self.write, 3),
            "sha256sum_s": round(self.sha256sum, 3),
            "verify_content_s": round(self.verify_content, 3),
        }


def upgrade_cost(volume: Path, work: Path, layout: Layout) -> UpgradeCost:
    """Measure with `volume`, which holds the image `old` of `layout`, and is removed; `work` is a folder."""
    changed = _changed_layer(volume / "root", work)
    old = work / "tree.tar"
    layout.add("rebuilt", old, settings=["REBUILT=1"])
    layout.add("one-percent", old, changed)
    find = _best(lambda: _run(["find", str(volume), "-printf", "%s %T@ %C@\\n"]))
    noop = _best(lambda: _upgrade(layout, "old", volume))
    content = _best(lambda: _jail("verify", str(volume), "--content"), runs=2)
    metadata = _best(lambda: _jail("verify", str(volume)))
    names = work / "names"
    with names.open("wb") as file:
        subprocess.run(["find", str(volume / "root"), "-type", "f", "-print0"], stdout=file, check=True)
    processors = len(os.sched_getaffinity(0))
    hashing = f"xargs -0 -P {processors} -n 200 sha256sum <{names} >/dev/null"
    sums = _best(lambda: _run(["sh", "-c", hashing]), runs=2)
    rebuilt = min(_timed(partial(_upgrade, layout, tag, volume)) for tag in ("rebuilt", "old") * 2)
    write, one_percent = [], []
    for _ in range(3):
        write.append(_timed(lambda: _write(changed, work / "written")))
        one_percent.append(_timed(lambda: _upgrade(layout, "one-percent", volume)))
        _jail("rollback", str(volume))
        # As for the first time: the layer is not known.
        for listing in (volume / ".cellblock/layers").iterdir():
            if listing.stat().st_size < 1 << 20:
                listing.unlink()
    memory = _memory(work, _MANIFEST_FILES)
    shutil.rmtree(volume)
    return UpgradeCost(find, noop, rebuilt, min(one_percent), min(write), sums, metadata, content, memory)


def _changed_layer(root: Path, work: Path) -> Path:
    """A layer with one file in a hundred of `root`, and something more in each."""
    changed, archive = work / "changed", work / "changed.tar"
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    for path in files[::_PERCENT]:
        target = changed / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
        with target.open("ab") as file:
            file.write(b"changed")
    # Of directories a layer says what they are: these are not the tree's, and are left out.
    with subprocess.Popen(
        ["find", ".", "-type", "f", "-print0"], cwd=changed, stdout=subprocess.PIPE
    ) as found:
        command = [*TAR, "--numeric-owner", "-cf", str(archive), "-C", str(changed), "--null", "-T", "-"]
        subprocess.run(command, stdin=found.stdout, check=True)
    return archive


def _write(archive: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    _run([*TAR, "-C", str(target), "-xf", str(archive)])
    _run(["sync", "-f", str(target)])


def _jail(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cellblock.cli", "jail", *arguments, "--json"], capture_output=True, text=True
    )
    if done.returncode:
        raise CellblockError(
            f"jail {' '.join(arguments)}: {done.stderr.strip()[-1000:]}",
            hint="correct what it says, then run the benchmark again",
        )


def _upgrade(layout: Layout, tag: str, volume: Path) -> None:
    _jail("upgrade", f"oci:{layout.folder}:{tag}", str(volume), "--log", "json")


def _best(action: Callable[[], object], runs: int = _RUNS) -> float:
    action()
    return min(_timed(action) for _ in range(runs))


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _run(command: list[str]) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


_MEMORY = """
import resource, sys
from pathlib import Path
from cellblock.jail.source import known_digests
from cellblock.jail.tree import manifest_diff
old, new = Path(sys.argv[1]), Path(sys.argv[2])
with known_digests.known_digests(old):
    found = manifest_diff.compare(old, new)
print(len(found), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def _memory(work: Path, files: int) -> float:
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
