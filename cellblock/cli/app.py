# SPDX-License-Identifier: Apache-2.0
"""Builds the command line: registers every command from the module of its group."""

from __future__ import annotations

from typing import Annotated

import typer

from cellblock.cli import (
    bench,
    cluster,
    cluster_health,
    cluster_rotate,
    cluster_status,
    cluster_upgrade,
    docs,
    doctor,
    release,
    render,
    testing,
    token,
)
from cellblock.cli.images import attest, build, cache, inspect, lock, matrix, packages, push, targets, verify
from cellblock.cli.jail import app as jail

app = typer.Typer(
    name="build.py",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        from cellblock.launcher import main as launcher

        print(launcher.version_text(launcher.PROJECT), end="")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and the commit."
        ),
    ] = False,
) -> None:
    """Builds Slurm images, assembles the jail, and runs a local cluster."""


app.command()(targets.targets)
app.command()(build.build)
app.command()(lock.lock)
app.add_typer(cache.app, name="cache")
app.command()(inspect.plan)
app.command()(inspect.why)
app.command()(verify.verify)
app.command()(inspect.diff)
app.command()(inspect.graph)
app.command()(inspect.report)
app.command()(attest.audit)
app.command()(attest.sbom)
app.command()(attest.attest)
app.command()(matrix.matrix)
app.command()(packages.packages)
app.command()(push.push)
app.command()(cluster.up)
app.command()(cluster_status.status)
app.command(context_settings=cluster.SHELL_CONTEXT)(cluster.shell)
app.command()(cluster.down)
app.command()(cluster.logs)
app.command()(cluster.clusters)
app.command()(cluster_health.health)
app.command()(token.token)
cluster.cluster_app.command("upgrade")(cluster_upgrade.cluster_upgrade)
cluster.cluster_app.command("rotate")(cluster_rotate.cluster_rotate)
app.add_typer(cluster.cluster_app, name="cluster")
app.add_typer(render.app, name="render")
app.add_typer(jail.group, name="jail")
app.add_typer(bench.app, name="bench")
app.command("test", context_settings=testing.CONTEXT)(testing.run_tests)
app.command()(docs.docs)
app.command()(doctor.doctor)
app.command()(release.release)
