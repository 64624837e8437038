# SPDX-License-Identifier: Apache-2.0
"""`build.py doctor`: says what this machine can and cannot do, and what to install."""

from __future__ import annotations

import dataclasses

import typer

from cellblock.cli.json_output import print_json
from cellblock.cli.options import JsonOption


def doctor(as_json: JsonOption = False) -> None:
    """Say what this machine can and cannot do, and what to install. Fails when `up` cannot run here."""
    from cellblock.doctor import can_run_up, examine

    findings = examine()
    ready = can_run_up(findings)
    if as_json:
        print_json({"ready": ready, "findings": [dataclasses.asdict(one) for one in findings]})
    else:
        width = max(len(one.subject) for one in findings)
        for one in findings:
            print(f"{one.verdict:7}  {one.subject:{width}}  {one.found}")
            if one.advice:
                print(f"{'':7}  {'':{width}}    next: {one.advice}")
        print("`build.py up` can run here" if ready else "`build.py up` cannot run here: see `missing` above")
    raise typer.Exit(0 if ready else 1)
