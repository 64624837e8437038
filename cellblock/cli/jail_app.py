# SPDX-License-Identifier: Apache-2.0
"""The targets of `build.py jail` by themselves: loading all others takes longer than an upgrade at rest."""

from __future__ import annotations

import typer

from cellblock.cli import jail, jail_backup, jail_change, jail_check, jail_init

for command in (
    *(jail_change.upgrade, jail_change.apply, jail_change.rollback, jail_change.history),
    *(jail_check.verify, jail_check.diff),
    *(jail_backup.backup, jail_backup.restore, jail_init.init),
):
    jail.app.command()(command)

group = jail.app

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
app.add_typer(group, name="jail")
