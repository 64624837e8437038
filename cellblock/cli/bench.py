# SPDX-License-Identifier: Apache-2.0
"""`build.py bench`: measures builds, the jail, containers, clusters and volumes on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from cellblock.cli.json_output import print_json
from cellblock.cli.options import JsonOption, LogOption, VariantOption

app = typer.Typer(help="Measure what docs/benchmarks.md says.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure what docs/benchmarks.md says."""


@app.command()
def jail(
    name: Annotated[
        str, typer.Option("--name", help="Name of the running cluster to measure on.")
    ] = "cellblock",
    pairs: Annotated[int, typer.Option(help="Rounds of steps, with the plugin and without.")] = 1000,
    level: Annotated[
        list[str] | None,
        typer.Option(help="Level of the jail; may be repeated (default: capabilities, pid)."),
    ] = None,
    mounts: Annotated[int, typer.Option(help="Lines of the mount plan.")] = 20,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Measure what the jail adds to a step, on the running cluster (`build.py up` first)."""
    from cellblock.bench.harness.percentile import percentile
    from cellblock.bench.jail import LEVELS, TASKS_AT_ONCE, step_cost
    from cellblock.cli.views import make_view
    from cellblock.events import Events

    events = Events()
    with make_view(log, events):
        result = step_cost(name, level or LEVELS, pairs, mounts, events)
    if as_json:
        print_json(result.keys())
        return
    print(f"{pairs} rounds of `srun true` a level, plan of {mounts} lines, in {result.seconds:.0f} s; ms:")
    print(f"  {'':24s}{'p50':>8s}{'p99':>8s}")
    for each in result.levels():
        for title, values in (("without the jail", result.without[each]), (each, result.steps[each])):
            print(f"  {title:24s}{percentile(values, 50):8.2f}{percentile(values, 99):8.2f}")
        print(f"  {'added by ' + each:24s}{result.added(each, 50):8.2f}{result.added(each, 99):8.2f}")
        unsure = "".join(f"{'±' + format(result.uncertainty(each, at), '.2f'):>8s}" for at in (50, 99))
        print(f"  {'  with 95 % confidence':24s}{unsure}")
        print(f"  {f'  {TASKS_AT_ONCE} tasks entering':24s}{result.entering(each):8.2f}")
        print(f"  {'  memory, KiB a task':24s}{result.memory_added(each):8.0f}")


@app.command()
def build(variant: VariantOption = None, log: LogOption = "auto", as_json: JsonOption = False) -> None:
    """Measure our build beside `buildah build` and `docker build` of the same images (takes minutes)."""
    from cellblock.bench.build import build_cost
    from cellblock.cli.views import make_view
    from cellblock.events import Events

    events = Events()
    with make_view(log, events):
        result = build_cost(variant, events)
    _print_keys(
        f"All {len(result.images)} images of {result.variant}, measured in {result.seconds:.0f} s:",
        result.keys(),
        as_json,
    )


@app.command()
def enroot(
    runs: Annotated[int, typer.Option(help="Starts of each kind.", min=2)] = 200,
    imports: Annotated[bool, typer.Option(help="Measure imports from a registry too.")] = True,
    peers: Annotated[
        bool,
        typer.Option("--peers", help="Beside podman, Charliecloud and Apptainer, too: 12 GB, ten minutes."),
    ] = False,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Measure the container runtime: start, create and import (four minutes, 6 GB of disk)."""
    from cellblock.bench.enroot import enroot_cost
    from cellblock.cli.views import make_view
    from cellblock.events import Events

    events = Events()
    with make_view(log, events):
        result = enroot_cost(runs, events, imports=imports, peers=peers)
    _print_keys(f"{runs} starts of each kind, measured in {result.seconds:.0f} s:", result.keys(), as_json)


@app.command()
def pyxis(
    name: Annotated[
        str, typer.Option("--name", help="Name of the running cluster to measure on.")
    ] = "cellblock",
    rounds: Annotated[int, typer.Option(help="Steps of each kind.", min=2)] = 30,
    peers: Annotated[
        bool,
        typer.Option(
            "--peers",
            help="On a Slurm of its own, beside podman, Charliecloud and Apptainer: 4 GB, four minutes.",
        ),
    ] = False,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Measure what a container adds to a step, on the running cluster (`build.py up` first; 5 GB of disk)."""
    from cellblock.bench.peers.pyxis_peers import step_peers
    from cellblock.bench.pyxis import container_cost
    from cellblock.cli.views import make_view
    from cellblock.events import Events

    events = Events()
    if peers:
        with make_view(log, events):
            keys = step_peers(rounds, events)
        _print_keys(f"{rounds} steps of each kind, on a Slurm of Debian sid:", keys, as_json)
        return
    with make_view(log, events):
        result = container_cost(name, rounds, events)
    _print_keys(f"{rounds} steps of each kind, measured in {result.seconds:.0f} s:", result.keys(), as_json)


@app.command()
def volume(
    rounds: Annotated[int, typer.Option(min=1, help="How often ours and tar are measured.")] = 4,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Measure a jail volume beside tar, rsync, cp, restic, find, sha256sum (eight minutes, 8 GB of disk)."""
    from cellblock.bench.volume import volume_cost
    from cellblock.cli.views import make_view
    from cellblock.events import Events

    events = Events()
    with make_view(log, events):
        result = volume_cost(events, rounds=rounds)
    _print_keys(
        f"{result.files} files, {result.bytes / 1e9:.2f} GB, measured in {result.seconds:.0f} s:",
        result.keys(),
        as_json,
    )


@app.command()
def cluster(variant: VariantOption = None, log: LogOption = "auto", as_json: JsonOption = False) -> None:
    """Measure a cluster of its own: starts, submissions, metrics, the volume (ten minutes, 5 GB of disk)."""
    from cellblock.bench.cluster import cluster_cost
    from cellblock.cli.views import make_view
    from cellblock.events import Events

    events = Events()
    with make_view(log, events):
        result = cluster_cost(variant, events)
    _print_keys(f"A cluster, measured in {result.seconds:.0f} s:", result.keys(), as_json)


@app.command()
def kubernetes(variant: VariantOption = None, log: LogOption = "auto", as_json: JsonOption = False) -> None:
    """Measure a cluster on a real Kubernetes, from `kubectl apply` to a job (needs CELLBLOCK_KUBERNETES)."""
    from cellblock.bench.kubernetes import kubernetes_cost
    from cellblock.cli.views import make_view
    from cellblock.events import Events

    events = Events()
    with make_view(log, events):
        result = kubernetes_cost(variant, events)
    _print_keys(f"A cluster of nine pods, measured in {result.seconds:.0f} s:", result.keys(), as_json)


@app.command()
def pull(variant: VariantOption = None, log: LogOption = "auto", as_json: JsonOption = False) -> None:
    """Measure what a node pulls before its first job, and what an update moves (minutes, 4 GB of disk)."""
    from cellblock.bench.pull import pull_cost
    from cellblock.cli.views import make_view
    from cellblock.events import Events

    events = Events()
    with make_view(log, events):
        result = pull_cost(variant, events)
    _print_keys(f"The worker's image, measured in {result.seconds:.0f} s:", result.keys(), as_json)


@app.command()
def health(
    name: Annotated[
        str, typer.Option("--name", help="Name of the running cluster to measure on.")
    ] = "cellblock",
    turns: Annotated[int, typer.Option(help="Turns of all quick checks.", min=1)] = 200,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Measure a turn of the health checks on a running cluster's first node (`build.py up` first)."""
    from cellblock.bench.health import health_cost
    from cellblock.cli.views import make_view
    from cellblock.events import Events

    events = Events()
    with make_view(log, events):
        result = health_cost(name, turns, events)
    _print_keys(f"{turns} turns of {result.checks} checks on {result.node}:", result.keys(), as_json)


def _print_keys(title: str, keys: Mapping[str, object], as_json: bool) -> None:
    """What a benchmark measured: one JSON object, or a line a key."""
    if as_json:
        print_json(keys)
        return
    print(title)
    for name, value in keys.items():
        print(f"  {name:32s}{value if value is not None else 'not measured'}")
