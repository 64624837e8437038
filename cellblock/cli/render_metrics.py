# SPDX-License-Identifier: Apache-2.0
"""`build.py render rules | dashboards`: prints alert rules for Prometheus, writes dashboards for Grafana."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cellblock.errors import CellblockError

OutputOption = Annotated[Path | None, typer.Option("--output", help="Folder to write it to.")]


def rules(output: OutputOption = None) -> None:
    """Print recording and alerting rules for Prometheus."""
    from cellblock.metrics.alert_rules import NAME, rules_file

    text = rules_file().read_text(encoding="utf-8")
    if output is None:
        print(text, end="")
        return
    _write(output, {NAME: text})


def dashboards(
    output: Annotated[Path, typer.Option("--output", help="Folder to write one file a dashboard to.")],
) -> None:
    """Write dashboards for Grafana: the cluster, nodes, jobs, the controller, the jail."""
    import json

    from cellblock.metrics.dashboards import ALL
    from cellblock.metrics.panels import render

    _write(output, {f"{one.uid}.json": json.dumps(render(one), indent=2) + "\n" for one in ALL})


def _write(folder: Path, texts: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CellblockError(
            f"{error.filename}: {error.strerror}", hint="name a folder that can be written"
        ) from error
    print(f"{folder}: {', '.join(texts)}")
