# SPDX-License-Identifier: Apache-2.0
"""Finds what a power cut may have damaged: files with a name whose data had not reached the disk.

Nothing is synced while a build runs: that takes as long as the build (docs/decisions/build-power-cut.md).
Instead it is known which files could be affected, and these are read again once, by the first build after a
boot:

    CACHE/settled   its time of change: all that was there then is on the disk
    CACHE/boot      the kernel's boot_id when the cache was last known to be whole

The kernel writes what is older than half a minute by itself, so noting that everything is on the disk costs
next to nothing a minute after a build; a build that begins so much later than the last one does it.

Every build asks, also one with nothing to do: what is needed after a boot only is imported then.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from cellblock.events import Events
from cellblock.files.flock import locked

# Seconds after which the kernel has written what is dirty: dirty_expire_centisecs is 3000, a flusher wakes
# every 5 s, and ext4 commits every 5 s.
_WRITTEN_S = 60.0


def recover(cache: Path, events: Events) -> None:
    """After a boot, look at what an earlier one may have left unwritten; remove what is not whole.

    Costs two small reads when there was no boot. Call it before `Layout.writing`: it waits for builds.
    """
    boot = boot_id()
    mark = cache / "boot"
    known = _read(mark)
    if known == boot:
        return
    if known is not None:
        from cellblock.store.inventory import layout_of, store_of

        layout, store = layout_of(cache), store_of(cache)

        def waiting() -> None:
            events.info("a build uses the cache; waiting for it, to look at what was written before the boot")

        with layout.alone(waiting), locked(store.folder / "lock", waiting=waiting):
            if _read(mark) != boot:
                _look(cache, events)
                _write(mark, boot)
    else:
        _write(mark, boot)


def mark_synced(cache: Path) -> None:
    """Have it noted that what earlier builds made is on the disk, if that is likely to be so already."""
    try:
        made = max((cache / name).stat().st_mtime for name in ("layers", "trees", "images/blobs/sha256"))
    except FileNotFoundError:
        return
    now = time.time()
    if now - made < _WRITTEN_S or settled(cache) > made:
        return
    # Beside the build: another program's files may be what takes long.
    threading.Thread(target=_settle, args=(cache, now), name=f"settle {cache}", daemon=True).start()


def settled(cache: Path) -> float:
    """All files changed before this time, in seconds since the epoch, are on the disk."""
    try:
        return (cache / "settled").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def boot_id() -> str:
    """Of the running kernel (random(4)); "" where it cannot be read."""
    return _read(Path("/proc/sys/kernel/random/boot_id")) or ""


def _settle(cache: Path, now: float) -> None:
    import ctypes  # most builds do without it

    folder = os.open(cache, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(folder) == 0:
            (cache / "settled").touch()
            os.utime(cache / "settled", (now, now))
    finally:
        os.close(folder)


def _look(cache: Path, events: Events) -> None:
    from cellblock.store.checking import forget_incomplete, remove_damaged
    from cellblock.store.inventory import layout_of, remove_made, store_of
    from cellblock.store.work_folders import WorkFolders

    since = settled(cache)
    layout, store = layout_of(cache), store_of(cache)
    blobs = [path for path in (layout.folder / "blobs" / "sha256").glob("*") if path.stat().st_mtime >= since]
    # A deb's time is that of its last use.
    debs = [path for path in store.folder.glob("sha256/*/*.deb") if path.stat().st_mtime >= since]
    trees = [path for path in (cache / "trees").glob("*") if path.stat().st_ctime >= since]
    if not (blobs or debs or trees):
        return
    with events.step("cache", "read again what was written before this machine started"):
        for damaged in remove_damaged([*debs, *blobs], events):
            events.info(f"{damaged.kind} {damaged.name} was not whole: it is had again when it is needed")
        forget_incomplete(cache, layout)
        # Reading trees takes as long as unpacking them, which only those need that others are made on.
        work = WorkFolders(cache / "work")
        for tree in trees:
            work.discard(tree)
        for deb in debs:
            remove_made(deb)


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
