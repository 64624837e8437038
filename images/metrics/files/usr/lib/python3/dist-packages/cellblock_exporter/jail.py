# SPDX-License-Identifier: Apache-2.0
"""Makes metrics of the jail volume's records: its image, how often it changed, and how nodes' steps fare.

Only root may read the records. So the program jail-records copies those that are read here (images/metrics).
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from cellblock_exporter.exposition import Text

# A record has a kilobyte.
_MOST_BYTES = 2**16
# What the plugins of Slurm count (jail-node-counters).
_COUNTED = {
    "cellblock_steps_entered_total": "Steps that entered the jail, since the node started",
    "cellblock_steps_failed_total": "Steps that did not enter the jail, since the node started",
    "cellblock_node_drains_total": "Times that the node was drained by itself, since it started",
    "cellblock_image_imports_total": "Images of containers that steps asked for, since the node started",
    "cellblock_image_imported_bytes_total": "Size of their files, since the node started",
}
# The health of nodes (node-health).
_HEALTH = {
    "cellblock_health_verdict": "Last verdict of a check: 0 passed, 1 failed, 2 could not run, 3 none yet",
    "cellblock_health_sick": "Whether a node is sick by a check",
    "cellblock_health_over_budget": "Whether it serves all the same: the check has drained too many nodes",
}
_SAMPLE = re.compile(r'(cellblock_\w+)(?:\{(reason|check|result)="([a-z][a-z0-9-]*)"\})? ([0-9]{1,19})')
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


def write_nothing(text: Text) -> None:
    """No families: no jail is known."""


def write_jail(text: Text, folder: Path) -> None:
    """The families of the jail, of the copies in `folder`."""
    _write_counted(text, folder / "nodes", folder / "verdicts")
    record = _record(folder / "state.json")
    text.gauge("cellblock_jail_ready", "Whether the jail is assembled", bool(record))
    text.family(
        "cellblock_jail_transactions_total",
        "counter",
        "Upgrades and rollbacks of the jail",
        (({}, _number(folder / "transactions")),),
    )
    if not record:
        return
    source = record.get("source", {})
    labels = {key: str(source.get(key, "")) for key in ("reference", "id", "release")}
    text.gauge("cellblock_jail_image_info", "The image that the jail is of", 1, labels)
    try:
        when = datetime.fromisoformat(str(record["assembled_at"])).timestamp()
        size, files = float(record["bytes"]), float(record["entries"])
    except (KeyError, ValueError, TypeError):
        return
    text.gauge(
        "cellblock_jail_image_timestamp_seconds", "Unix time at which this image came into the jail", when
    )
    text.gauge("cellblock_jail_image_bytes", "Size of the image's files", size)
    text.gauge("cellblock_jail_image_files", "Files and folders of the image", files)


def _write_counted(text: Text, *folders: Path) -> None:
    """The families of what is known of nodes, of a file for each; what is no sample there is left out.

    Of a sample that two files have the last one counts: Prometheus takes no page that has one twice.
    """
    samples: dict[str, dict[tuple[str, ...], int]] = {name: {} for name in (*_COUNTED, *_HEALTH)}
    for path in (path for folder in folders for path in sorted(folder.glob("*.prom"))):
        if not _NODE.fullmatch(path.stem):
            continue
        for line in _read(path).splitlines():
            found = _SAMPLE.fullmatch(line)
            if found and found[1] in samples:
                labels = (path.stem, found[2], found[3]) if found[2] else (path.stem,)
                samples[found[1]][labels] = int(found[4])
    for families, kind in ((_COUNTED, "counter"), (_HEALTH, "gauge")):
        for name, help_text in families.items():
            text.family(name, kind, help_text, (_sample(*one) for one in samples[name].items()))


def _sample(labels: tuple[str, ...], value: int) -> tuple[dict[str, str], int]:
    """A sample of labels NODE or NODE, NAME, VALUE."""
    node, *other = labels
    return {"node": node, **({other[0]: other[1]} if other else {})}, value


def _read(path: Path) -> str:
    """The file's text; "" when it is not there or too long."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError:
        return ""
    return content.decode("utf-8", "replace") if len(content) <= _MOST_BYTES else ""


def _record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(_read(path))
    except ValueError:
        return {}
    return record if isinstance(record, dict) and isinstance(record.get("source"), dict) else {}


def _number(path: Path) -> int:
    text = _read(path).strip()
    return int(text) if text.isdigit() else 0
