# SPDX-License-Identifier: Apache-2.0
"""Writes the report (report.py) as one HTML page that loads nothing and is mostly readable without scripts.

Its parts are in page/: the template, its style, and the treemap.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from cellblock.inspect.graph_svg import svg
from cellblock.inspect.report import NODE, Report
from cellblock.inspect.sharing import bytes_in_common
from cellblock.inspect.timings import Timing, step_names, timings
from cellblock.text.amount import amount_of_bytes

_FOLDER = Path(__file__).parent / "page"
_KINDS = {
    "base": "bootstrapped base",
    "shared": "packages of several images",
    "packages": "packages of one image and those on it",
    "cuda": "CUDA",
    "manuals": "manual pages",
    "files": "files and settings",
    "output": "compiled",
}


def page(report: Report) -> str:
    """The whole page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(amount=amount_of_bytes, duration=_duration)
    records = report.records
    spent = timings(records.values())
    steps = step_names(spent)
    present = {shared.layer.kind for shared in report.layers}
    return environment.get_template("report.html.j2").render(
        report=report,
        css=Markup(_text("report.css")),
        script=Markup(_text("treemap.js") + _text("report.js")),
        data=Markup(_script_json(_data(report))),
        picture=Markup(svg(report.graph)),
        kinds=[(kind, title) for kind, title in _KINDS.items() if kind in present],
        stored=sum(shared.layer.size for shared in report.layers),
        separate=sum(layer.size for record in records.values() for layer in record.layers),
        unpacked=sum(shared.layer.uncompressed for shared in report.layers),
        largest=max((shared.layer.size for shared in report.layers), default=1) or 1,
        seconds=sum(record.seconds for record in records.values()),
        image_rows=_image_rows(report),
        matrix=_matrix(report),
        steps=steps,
        time_rows=_time_rows(spent, steps),
        package_rows=_package_rows(report),
        locks=sorted({record.lock for record in records.values() if record.lock}),
    )


def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _script_json(value: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60:02} s"


def _data(report: Report) -> dict[str, Any]:
    """What the treemap draws."""
    return {
        "images": list(report.records),
        "node": list(NODE) if report.node else None,
        "layers": [
            {
                "title": shared.layer.title,
                "kind": shared.layer.kind,
                "size": shared.layer.size,
                "uncompressed": shared.layer.uncompressed,
                "packages": len(shared.layer.packages),
                "images": shared.images,
                "parts": [part._asdict() for part in report.parts[shared.layer.digest]],
            }
            for shared in report.layers
        ],
    }


def _image_rows(report: Report) -> list[dict[str, Any]]:
    held = {shared.layer.digest: len(shared.images) for shared in report.layers}
    rows: list[dict[str, Any]] = []
    for record in report.records.values():
        size = sum(layer.size for layer in record.layers)
        own = sum(layer.size for layer in record.layers if held[layer.digest] == 1)
        rows.append(
            {
                "name": record.image,
                "layers": len(record.layers),
                "size": size,
                "own": own,
                "shared": size - own,
                "uncompressed": sum(layer.uncompressed for layer in record.layers),
                "seconds": record.seconds,
            }
        )
    most = max((row["size"] for row in rows), default=1) or 1
    return [{**row, "part": row["size"] / most} for row in rows]


def _matrix(report: Report) -> list[dict[str, Any]]:
    records = report.records.values()
    common = {(one.image, other.image): bytes_in_common(one, other) for one in records for other in records}
    most = max((value for (one, other), value in common.items() if one != other), default=1) or 1
    return [
        {
            "name": one,
            "cells": [
                {
                    "name": other,
                    "bytes": common[one, other],
                    "same": one == other,
                    "part": common[one, other] / most,
                }
                for other in report.records
            ],
        }
        for one in report.records
    ]


def _time_rows(found: Sequence[Timing], steps: Sequence[str]) -> list[dict[str, Any]]:
    most = max((timing.seconds for timing in found), default=0.0)
    return [
        {
            "timing": timing,
            "part": timing.seconds / most,
            "steps": [
                {"name": name, "index": steps.index(name), "seconds": seconds}
                for name, seconds in timing.steps.items()
                if seconds
            ],
        }
        for timing in found
        if timing.seconds
    ]


def _package_rows(report: Report) -> Sequence[dict[str, Any]]:
    """Each package of each layer, the largest first."""
    rows = []
    for shared in report.layers:
        size = {part.name: part.bytes for part in report.parts[shared.layer.digest]}
        for name, version in shared.layer.packages:
            rows.append(
                {
                    "name": name,
                    "version": version,
                    "bytes": size.get(name.partition(":")[0], 0),
                    "layer": shared.layer.title,
                    "kind": shared.layer.kind,
                }
            )
    return sorted(rows, key=lambda row: (-row["bytes"], row["name"]))
