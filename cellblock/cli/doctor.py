# SPDX-License-Identifier: Apache-2.0
"""`build.py doctor`: says what this machine can and cannot do, and what to install."""

from __future__ import annotations

import dataclasses

import typer

from cellblock.cli.json_output import print_json
from cellblock.cli.options import JsonOption
from cellblock.cli.rows import columns
from cellblock.text.lines import broken


def doctor(as_json: JsonOption = False) -> None:
    """Say what this machine can and cannot do, and what to install. Fails when `up` cannot run here."""
    from cellblock.doctor import can_run_up, examine

    findings = examine()
    ready = can_run_up(findings)
    if as_json:
        print_json({"ready": ready, "findings": [dataclasses.asdict(one) for one in findings]})
    else:
        width = max(len(one.subject) for one in findings)
        of_terminal = columns()
        for one in findings:
            found = f"{one.verdict:7}  {one.subject:{width}}  {one.found}"
            lines = broken(found, of_terminal, 7 + 2 + width + 2)
            if one.advice:
                # Not below what was found: there a narrow terminal has no room for a sentence.
                lines += broken(f"{'':7}  next: {one.advice}", of_terminal, 7 + 2 + len("next: "))
            print(*lines, sep="\n")
        print("`build.py up` can run here" if ready else "`build.py up` cannot run here: see `missing` above")
    raise typer.Exit(0 if ready else 1)
