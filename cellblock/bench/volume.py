"""What it takes to assemble a jail volume, beside what others use to fill a directory.

One tree of at least 45,000 files and 1.4 GB, taken from this machine's own /usr, as a directory, a plain tar,
an OCI layout of one zstd layer, and a restic repository. Each way writes it to the same filesystem, in turns
and more than once; the median counts. What is written is flushed before the next begins, outside of the time:
`tar -x` does not wait for the disk. Our own time has everything that `jail assemble` does, also the flush.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from cellblock.bench.slow_fs import slow_filesystem
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.layout import ARCHITECTURES
from cellblock.oci.model import MANIFEST, Configuration, Descriptor, Index, Manifest, Platform

FILES, BYTES = 45_000, 1_400_000_000
SLOW_FILES = 1_500
_LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"
_TAR = ["tar", "--format=posix", "--xattrs", "--xattrs-include=*"]
_TAKEN = ("share/doc", "share/man", "include", "share/locale", "share/icons", "lib/python3", "bin", "lib")


@dataclass
class VolumeCost:
    """Seconds of each way, by round; `slow` on the filesystem with 1 ms a call."""

    files: int
    bytes: int
    times: dict[str, list[float]] = field(default_factory=dict)
    slow: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    def keys(self) -> dict[str, float | int | None]:
        """The figures by the names that others rely on; None where a program is not here.

        The other half of this bench, of a volume that is there (noop_upgrade_vs_find, verify_vs_sha256sum),
        adds its keys here.
        """
        found: dict[str, float | int | None] = {"files": self.files, "bytes": self.bytes}
        for name, times in self.times.items():
            found[f"{name}_s"] = round(statistics.median(times), 2)
        for other in ("tar", "tar_flushed", "rsync", "unpack_and_cp", "restic"):
            found[f"assemble_vs_{other}"] = self._ratio("assemble", other)
        for name, seconds in self.slow.items():
            found[f"slow_{name}_s"] = round(seconds, 2)
        ours, theirs = self.slow.get("assemble"), self.slow.get("rsync")
        found["slow_fs_vs_rsync"] = round(ours / theirs, 4) if ours and theirs else None
        return found

    def _ratio(self, ours: str, theirs: str) -> float | None:
        if ours not in self.times or theirs not in self.times:
            return None
        return round(statistics.median(self.times[ours]) / statistics.median(self.times[theirs]), 3)


def volume_cost(events: Events, *, rounds: int = 3, slow_files: int = SLOW_FILES) -> VolumeCost:
    """Measure. Takes minutes, and 8 GB below /var/tmp. Raises CellblockError."""
    if os.geteuid() != 0:
        raise CellblockError("this measures what only root can write", hint="run this as root (sudo)")
    began = time.monotonic()
    with TemporaryDirectory(dir="/var/tmp", prefix="cellblock-bench-") as folder:
        work = Path(folder)
        with events.step("volume", "make the tree"):
            files, size = make_tree(work / "tree")
            make_sources(work / "tree", work)
        cost = VolumeCost(files, size)
        for number in range(rounds):
            for name, run in _ways(work).items():
                with events.step("volume", f"{name}, round {number + 1}"):
                    cost.times.setdefault(name, []).append(_timed(run, work / "target"))
        with events.step("volume", "1 ms a call"):
            cost.slow = _slow(work, slow_files)
        cost.seconds = time.monotonic() - began
    return cost


def make_tree(root: Path, files: int = FILES, size: int = BYTES) -> tuple[int, int]:
    """Copy directories of /usr until there are so many files and bytes, under other names if need be."""
    counted = total = 0
    for again in range(9):
        for name in _TAKEN:
            if counted >= files and total >= size:
                return counted, total
            source, target = Path("/usr", name), root / f"usr{again or ''}" / name
            if not source.is_dir():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            folders = [source] if name != "lib" else [one for one in source.iterdir() if one.is_dir()]
            for one in folders:
                place = target if name != "lib" else target / one.name
                if counted >= files and total >= size:
                    break
                if place.exists():
                    continue
                place.parent.mkdir(parents=True, exist_ok=True)
                subprocess.run(["cp", "-a", str(one), str(place)], check=True)
                for path, _, names in os.walk(place):
                    counted += len(names)
                    total += sum(os.lstat(os.path.join(path, each)).st_size for each in names)  # noqa: PTH118
    raise CellblockError("/usr is too small to make a jail of")


def make_sources(tree: Path, work: Path) -> None:
    """The tree as work/tree.tar, the layout work/layout, and where restic is here, work/repository."""
    archive = work / "tree.tar"
    subprocess.run([*_TAR, "-C", str(tree), "-cf", str(archive), "."], check=True)
    write_layout(archive, work / "layout")
    if shutil.which("restic"):
        restic = ["restic", "-q", "-r", str(work / "repository"), "--no-cache"]
        environment = {**os.environ, "RESTIC_PASSWORD": "bench"}
        subprocess.run([*restic, "init"], check=True, env=environment)
        subprocess.run([*restic, "backup", "."], check=True, env=environment, cwd=tree)


def write_layout(archive: Path, folder: Path) -> None:
    """An OCI layout with one image of one layer: the tar, compressed as `build.py build` does by default."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)
    layer = folder / "layer"
    subprocess.run(["zstd", "-q", "-3", "-T0", str(archive), "-o", str(layer)], check=True)

    def stored(data: bytes, media_type: str) -> Descriptor:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return Descriptor(media_type, f"sha256:{digest}", len(data))

    digest = _digest(layer)
    size = layer.stat().st_size
    layer.rename(blobs / digest)
    machine = ARCHITECTURES.get(platform.machine(), platform.machine())
    configuration = Configuration(Platform("linux", machine), (f"sha256:{_digest(archive)}",))
    config = stored(configuration.to_bytes(), "application/vnd.oci.image.config.v1+json")
    manifest = Manifest(config, (Descriptor(_LAYER, f"sha256:{digest}", size),))
    (folder / "index.json").write_bytes(Index((stored(manifest.to_bytes(), MANIFEST),)).to_bytes())
    (folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        total = hashlib.sha256()
        while data := file.read(1 << 20):
            total.update(data)
    return total.hexdigest()


def _assemble(source: str, target: Path) -> list[str]:
    return [sys.executable, "-m", "cellblock.cli", "jail", "assemble", source, str(target), "--log", "json"]


def _ways(work: Path) -> dict[str, Callable[[Path], object]]:
    tar, layout = str(work / "tree.tar"), work / "layout"
    layer = max((layout / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)

    def run(*command: str, env: dict[str, str] | None = None) -> None:
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})})
        if done.returncode:
            raise CellblockError(f"{' '.join(command)}: {done.stderr.strip()[-1000:]}")

    def untar(target: Path) -> None:
        run(*_TAR, "-C", str(target), "-xf", tar)

    def untar_flushed(target: Path) -> None:
        untar(target)
        run("sync", "-f", str(target))

    def unpack_and_cp(target: Path) -> None:
        (target / "unpacked").mkdir()
        run(*_TAR, "-C", str(target / "unpacked"), "--zstd", "-xf", str(layer))
        run("cp", "-a", str(target / "unpacked"), str(target / "copied"))

    ways: dict[str, Callable[[Path], object]] = {
        "assemble": lambda target: run(*_assemble(f"oci:{layout}", target)),
        "tar": untar,
        "tar_flushed": untar_flushed,
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


def _timed(run: Callable[[Path], object], target: Path) -> float:
    target.mkdir()
    os.sync()
    began = time.monotonic()
    run(target)
    seconds = time.monotonic() - began
    os.sync()
    shutil.rmtree(target)
    os.sync()
    return seconds


def _slow(work: Path, files: int) -> dict[str, float]:
    """Part of the tree, to a filesystem on which each call takes a millisecond."""
    part = work / "part"
    listed = [path for path in sorted((work / "tree").rglob("*")) if path.is_file() and not path.is_symlink()]
    for path in listed[:: max(1, len(listed) // files)][:files]:
        place = part / path.relative_to(work / "tree")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place)
    subprocess.run([*_TAR, "-C", str(part), "-cf", str(work / "part.tar"), "."], check=True)
    write_layout(work / "part.tar", work / "part-layout")
    times = {}
    with ExitStack() as mounted:
        folder = work / "slow"
        folder.mkdir()
        place = mounted.enter_context(slow_filesystem(folder))
        commands = {"assemble": _assemble(f"oci:{work / 'part-layout'}", place / "volume")}
        if shutil.which("rsync"):
            commands["rsync"] = ["rsync", "-aHAX", f"{part}/", f"{place / 'rsync'}/"]
        for name, command in commands.items():
            began = time.monotonic()
            subprocess.run(command, check=True, capture_output=True)
            times[name] = time.monotonic() - began
    return times
