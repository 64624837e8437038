# SPDX-License-Identifier: Apache-2.0
"""Registers the commands of `build.py jail` alone: loading all commands takes longer than a small upgrade."""

from __future__ import annotations

import typer

from cellblock.cli.jail import adopt, assemble, backup, change, check, init, status

group = assemble.app

for command in (
    *(adopt.adopt, change.upgrade, change.apply, change.rollback, change.history),
    *(check.verify, check.diff, status.status),
    *(backup.backup, backup.restore, init.init),
):
    group.command()(command)

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
app.add_typer(group, name="jail")
