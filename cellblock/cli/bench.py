"""`build.py bench`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cellblock.cli.options import JsonOption, LogOption

app = typer.Typer(help="Measure what docs/benchmarks.md says.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure what docs/benchmarks.md says."""


@app.command()
def jail(
    name: Annotated[
        str, typer.Option("--name", help="Name of the running cluster to measure on.")
    ] = "cellblock",
    pairs: Annotated[int, typer.Option(help="Pairs of steps, with the plugin and without.")] = 1000,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Measure what the jail adds to a step, on the running cluster (`build.py up` first)."""
    from cellblock.bench.jail import step_overhead
    from cellblock.cli.views import make_view
    from cellblock.events import Events

    events = Events()
    with make_view(log, events):
        result = step_overhead(name, pairs, events)
    keys = result.keys()
    if as_json:
        print(json.dumps(keys))
        return
    print(f"{pairs} pairs of `srun true` in {result.seconds:.0f} s, in ms:")
    print(f"             p50      p99\n  with    {result.with_p50:7.2f}  {result.with_p99:7.2f}")
    print(f"  without {result.without_p50:7.2f}  {result.without_p99:7.2f}")
    print(f"  added   {keys['step_overhead_ms_p50']:7.2f}  {keys['step_overhead_ms_p99']:7.2f}")
