"""Telling a process from a later one that got its number."""

from __future__ import annotations

from pathlib import Path


def start_time(pid: int) -> int:
    """Start time of a process in clock ticks since boot (proc(5), stat, field 22). Raises OSError."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(text.rsplit(")", 1)[1].split()[19])


def same_process(pid: int, started: int) -> bool:
    """Whether process `pid` runs and is the one that started then."""
    try:
        return start_time(pid) == started
    except OSError:
        return False
