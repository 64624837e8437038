# SPDX-License-Identifier: Apache-2.0
"""Checks the cache in the first build after a boot: a power cut may have left files without their content.

A build does not sync its files: that takes as long as the build (docs/decisions/build-power-cut.md). The
kernel writes files older than half a minute by itself, so a power cut takes only what was written last.
CACHE/boot holds the kernel's boot_id when the cache was last known to be whole.

Every build asks this module, so it imports what only the check needs when it checks.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from cellblock.events import Events
from cellblock.files.flock import locked

# Seconds of writing that a power cut may take. The kernel needs some 40 (dirty_expire_centisecs is 3000, a
# flusher wakes every 5 s, ext4 commits every 5 s); a slow disk needs more.
_UNWRITTEN_S = 300.0


def check_after_boot(cache: Path, events: Events) -> None:
    """After a boot, look at what was written last before it; remove what is not whole.

    Costs two small reads when there was no boot. Call it before `Layout.writing`: it waits for builds.
    """
    boot = boot_id()
    mark = cache / "boot"
    known = _read(mark)
    if known == boot:
        return
    if known is None:
        _write(mark, boot)
        return
    from cellblock.store.inventory import layout_of, store_of

    def waiting() -> None:
        events.info("a build uses the cache; waiting for it, to look at what was written before the boot")

    with layout_of(cache).alone(waiting), locked(store_of(cache).folder / "lock", waiting=waiting):
        if _read(mark) != boot:
            _look(cache, events)
            _write(mark, boot)


def boot_id() -> str:
    """Of the running kernel (random(4)); "" where it cannot be read."""
    return _read(Path("/proc/sys/kernel/random/boot_id")) or ""


def _look(cache: Path, events: Events) -> None:
    from cellblock.store.checking import forget_incomplete, remove_damaged
    from cellblock.store.inventory import layout_of, remove_made, store_of
    from cellblock.store.work_folders import WorkFolders

    layout = layout_of(cache)
    # A deb's time is that of its last use.
    debs = {path: path.stat().st_mtime for path in store_of(cache).folder.glob("sha256/*/*.deb")}
    blobs = {path: path.stat().st_mtime for path in (layout.folder / "blobs/sha256").glob("*")}
    trees = {path: _unpacked(path) for path in (cache / "trees").glob("*")}
    # The power was cut no earlier than this.
    newest = max((*debs.values(), *blobs.values(), *trees.values()), default=0.0)

    def last(times: dict[Path, float]) -> list[Path]:
        return [path for path, time in times.items() if time >= newest - _UNWRITTEN_S]

    with events.step("cache", "read again what was written before this machine started"):
        for damaged in remove_damaged([*last(debs), *last(blobs)], events):
            events.info(f"{damaged.kind} {damaged.name} was not whole: it is had again when it is needed")
        forget_incomplete(cache, layout)
        # Reading trees takes as long as unpacking them, which only those need that others are made on.
        work = WorkFolders(cache / "work")
        for tree in last(trees):
            work.discard(tree)
        for deb in last(debs):
            remove_made(deb)


def _unpacked(tree: Path) -> float:
    return tree.stat().st_ctime


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _write(path: Path, text: str) -> None:
    # Where it cannot be written, what comes next says so; the next build looks again.
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
