# SPDX-License-Identifier: Apache-2.0
"""`build.py up | shell | down | logs | clusters | cluster`: starts, enters and ends the local cluster.

It also has `cluster diff`, `cluster backup` and `cluster restore`; `cluster upgrade` and `cluster rotate` are
in cluster_upgrade.py and cluster_rotate.py.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cellblock.cli.json_output import print_json
from cellblock.cli.options import (
    JsonOption,
    LogOption,
    MirrorOption,
    SitesOption,
    VariantOption,
    cluster_names,
)
from cellblock.cli.rows import columns, lines_of_table
from cellblock.launcher.failure import typeable

if TYPE_CHECKING:
    from cellblock.cluster import ClusterStatus, Proof

cluster_app = typer.Typer(help="Look at and change a cluster that runs.", no_args_is_help=True)
NameOption = Annotated[str, typer.Option("--name", help="Name of the cluster.", autocompletion=cluster_names)]
SHELL_CONTEXT = {"allow_interspersed_args": False}
"""What follows the first word of the command is the command's: `shell srun -N2 hostname`."""


def up(
    variant: VariantOption = None,
    cluster: Annotated[
        Path | None,
        typer.Option("--cluster", help="The cluster file; other options take the place of what it says."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="Name of the cluster (default: cellblock).", autocompletion=cluster_names
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(help="How many workers (default: 2).")] = None,
    ssh_port: Annotated[
        int | None, typer.Option(help="Port of the login node on 127.0.0.1 (default: 2222).")
    ] = None,
    engine: Annotated[str, typer.Option(help="Whose Docker API runs it: podman or docker.")] = "podman",
    jail_root: Annotated[
        str | None,
        typer.Option(
            help="What root in the jail is to Slurm: nobody (submits no jobs; the default), or operator (can "
            "take over the cluster)."
        ),
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option(
            help="How long nodes that must start anew wait for their jobs (default: 10m); 0 ends the jobs."
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(help="Leave out a part: accounting, rest or metrics. May be repeated."),
    ] = None,
    mirror: MirrorOption = None,
    jail: Annotated[
        str | None,
        typer.Option(
            help="Image that the jail is made of: jail (the default), or jail-devel with compilers."
        ),
    ] = None,
    sites: SitesOption = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Build the images, assemble the jail, start a Slurm cluster and run jobs in it."""
    from cellblock.cli.views import make_view
    from cellblock.cluster.up import bring_up
    from cellblock.cluster.up_request import UpRequest
    from cellblock.events import Events

    started = time.monotonic()
    events = Events()
    request = UpRequest(
        *(name, variant, workers, ssh_port, engine, tuple(mirror or ())),
        jail_root=jail_root,
        jail=jail,
        file=cluster,
        wait=wait,
        without=tuple(without or ()),
        sites=tuple(sites or ()),
    )
    with make_view(log, events):
        result = bring_up(request, events)
    seconds = time.monotonic() - started
    if as_json:
        print_json(
            {
                "name": result.status.name,
                "variant": result.build.variant.name,
                "seconds": round(seconds, 3),
                "download_s": round(result.build.download_s, 3),
                "phases": {phase: round(spent, 3) for phase, spent in result.phases.items()},
                "built": result.build.built,
                "proof": asdict(result.proof) if result.proof else None,
            }
        )
        return
    if result.proof:
        _print_proof(result.proof)
    phases = ", ".join(f"{phase} {spent:.1f}" for phase, spent in result.phases.items())
    print(f"\nReady after {seconds:.1f} s ({phases}; {result.build.download_s:.1f} s of it downloading).")
    _print_next_steps(result.status)


def _print_proof(proof: Proof) -> None:
    print("\nA job over all workers, each in the jail:")
    for worker, release in proof.workers.items():
        print(f"  {worker}: {release}")
    print(f"A job on {proof.writer} wrote to {proof.path}:\n  {proof.written}")
    print(f"A job on {proof.reader} read there:\n  {proof.read}")
    print(f"The login node sees there:\n  {proof.login}")


def _print_next_steps(status: ClusterStatus) -> None:
    from cellblock.cluster import PROOF_USER, name_option

    name = name_option(status.name)
    workers = sum(container.role == "worker" for container in status.containers)
    job = ("srun -N2 hostname", "a job over two workers") if workers > 1 else ("srun hostname", "a job")
    steps = {
        f"python3 build.py shell --user {PROOF_USER}{name}": "a user's shell in the jail, on the login node",
        job[0]: f"(there) {job[1]}",
        "sbatch --wrap hostname": "(there) a batch job; its output lands in your folder",
        f"python3 build.py shell{name}": "root's shell in the jail: install software, make users",
        f"python3 build.py shell --admin{name}": "Slurm's operator, outside the jail: scontrol, scancel",
        **(
            {f"python3 build.py token {PROOF_USER}{name}": f"a token for the REST API, {status.rest_urls[0]}"}
            if status.rest_urls
            else {}
        ),
        status.ssh_command: "",
        f"python3 build.py down{name}": "stop; the jail and what is in it stay",
    }
    lines = lines_of_steps(steps, columns())
    if status.host_key:
        # ssh asks whether it is the right one.
        lines.insert(
            lines.index(f"  {status.ssh_command}") + 1, f"      host key: {status.host_key} (ED25519)"
        )
    print("\nNext:", *lines, sep="\n")


def lines_of_steps(steps: Mapping[str, str], width_of_terminal: int | None) -> list[str]:
    """Commands with what they mean beside them, or below them on a terminal too narrow for it."""
    width = max(len(command) for command, meaning in steps.items() if meaning) + 2
    room = width_of_terminal
    if room is None or all(2 + width + len(meaning) <= room for meaning in steps.values() if meaning):
        return [f"  {command:{width}}{meaning}".rstrip() for command, meaning in steps.items()]
    pairs = ((f"  {command}", f"      {meaning}".rstrip()) for command, meaning in steps.items())
    return [line for pair in pairs for line in pair if line]


def shell(
    command: Annotated[list[str] | None, typer.Argument(help="Command to run instead of a shell.")] = None,
    name: NameOption = "cellblock",
    user: Annotated[str, typer.Option("--user", "-u", help="User of the jail to be.")] = "root",
    admin: Annotated[
        bool,
        typer.Option(
            "--admin",
            help="Be Slurm's operator: root on the controller, outside the jail, with Slurm's commands.",
        ),
    ] = False,
) -> None:
    """Open a shell in the jail, on the login node, or run a command there.

    Options of `shell` come before the command; what follows its first word is the command's own.
    Root in the jail submits no jobs (unless up was told --jail-root operator): be a user for that.
    """
    from cellblock import cluster
    from cellblock.errors import UsageError

    if admin and user != "root":
        raise UsageError(
            "--admin is root, outside the jail, and --user is of the jail: they exclude each other",
            hint="leave out one of them",
        )
    who = " --admin" if admin else "" if user == "root" else f" --user {shlex.quote(user)}"
    if command and len(command) == 1 and " " in command[0] and not command[0].startswith("/"):
        raise UsageError(
            f"'{command[0]}' is one word, and would be a program of that name",
            hint="leave the quotes out, or have a shell read the line: "
            f"`build.py shell{who}{cluster.name_option(name)} -- sh -c '...'`",
        )
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    argv = cluster.shell_argv(name, command or (), user=user, admin=admin, terminal=terminal)
    cluster.require_running(name, argv)
    os.execvp(argv[0], argv)


def down(
    name: NameOption = "cellblock",
    purge: Annotated[
        bool, typer.Option("--purge", help="Also delete the jail with all that users wrote, and the secrets.")
    ] = False,
    log: LogOption = "auto",
) -> None:
    """Stop the cluster. The jail stays, unless --purge."""
    from cellblock.cli.views import make_view
    from cellblock.cluster.down import take_down
    from cellblock.events import Events

    events = Events()
    with make_view(log, events):
        stopped = take_down(name, events, purge=purge)
    first = f"cluster {name} is stopped" if stopped else f"cluster {name} did not run"
    print(first + ("; its jail is deleted" if purge else "; its jail is kept"))


def logs(
    where: Annotated[
        str | None, typer.Argument(help="A role or a host: controller, worker, login, worker-1, ...")
    ] = None,
    name: NameOption = "cellblock",
    job: Annotated[int | None, typer.Option("--job", help="Only lines about this job.", min=1)] = None,
    lines: Annotated[
        int | None, typer.Option("--lines", "-n", help="At most the last so many of each host.", min=0)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with lines as they come.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each line as a JSON object.")] = False,
) -> None:
    """Print what the cluster's daemons say, in the order of time."""
    from cellblock.cluster.logs import LogRequest, log_lines

    width = 0
    for line in log_lines(LogRequest(name, where, job, lines, follow)):
        if as_json:
            print_json(asdict(line))
        else:
            width = max(width, len(line.host))
            print(f"{line.host:{width}}  {line.text}")
        if follow:
            sys.stdout.flush()


def clusters(as_json: JsonOption = False) -> None:
    """List the clusters of this machine: those that run, and those of which a jail is kept."""
    from cellblock.cluster.listing import list_clusters
    from cellblock.cluster.up_request import volume_path

    found = list_clusters()
    if as_json:
        print_json({"clusters": [asdict(one) for one in found]})
        return
    if not found:
        print("no clusters; `python3 build.py up` starts one")
        return
    rows = [("NAME", "STATE", "VARIANT", "NODES", "SSH", "JAIL")]
    rows += [
        (
            *(one.name, one.state, one.variant or "-", str(one.nodes or "-")),
            *(str(one.ssh_port or "-"), str(one.volume)),
        )
        for one in found
    ]
    width = columns()
    lines = lines_of_table(rows, None)
    if width and max(map(len, lines)) > width and all(one.volume == volume_path(one.name) for one in found):
        lines = [
            *lines_of_table([row[:-1] for row in rows], width),
            f"jails: {found[0].volume.parents[1]}/NAME/volume",
        ]
    print(*lines, sep="\n")
    # Mostly all for one reason: who asks is not root.
    for error, hint in dict.fromkeys((one.error, one.next) for one in found if one.error):
        names = ", ".join(one.name for one in found if one.error == error)
        print(f"{names}: {error}\n  next: {typeable(hint)}")


@cluster_app.command("diff")
def cluster_diff(
    file: Annotated[
        Path | None,
        typer.Argument(help="The cluster file (default: what the last `up` of the cluster was asked for)."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="Name of the cluster (default: the file's, or cellblock).",
            autocompletion=cluster_names,
        ),
    ] = None,
    variant: VariantOption = None,
    mirror: MirrorOption = None,
    sites: SitesOption = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Show what `up --cluster FILE` would change of what runs, and what that does to jobs.

    Without FILE: what the same `up` as the last, with its options, would change: images that are new, say.
    Exit status 1 when it would change something.
    """
    from cellblock.cli.views import make_view
    from cellblock.cluster.changing.changes import EFFECTS
    from cellblock.cluster.diff import cluster_diff as compare
    from cellblock.cluster.up_request import UpRequest
    from cellblock.events import Events

    events = Events()
    request = UpRequest(
        name=name, variant=variant, mirrors=tuple(mirror or ()), file=file, sites=tuple(sites or ())
    )
    with make_view(log, events):
        found, changes = compare(request, events)
    if as_json:
        rows = [asdict(change) for change in changes.changes]
        print_json({"cluster": found, "changes": rows})
    elif not changes.changes:
        print(f"cluster {found} is what {'the file says' if file else 'its last `up` was asked for'}")
    else:
        for effect, meaning in EFFECTS.items():
            of_effect = [change for change in changes.changes if change.effect == effect]
            if of_effect:
                print(f"{effect}: {meaning}")
                for change in of_effect:
                    print(f"  {change.what}")
    raise typer.Exit(1 if changes.changes else 0)


@cluster_app.command("backup")
def cluster_backup(
    file: Annotated[Path, typer.Argument(help="The new file, a tar archive.")],
    name: NameOption = "cellblock",
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Back up what Slurm remembers: its state and the accounting's database.

    The cluster runs and goes on. The jail has backups of its own: `build.py jail backup`.
    """
    from cellblock.cli.views import make_view
    from cellblock.cluster.backup import back_up
    from cellblock.events import Events

    events = Events()
    with make_view(log, events):
        made = back_up(name, file, events)
    if as_json:
        print_json(asdict(made))
    else:
        print(f"cluster {name} is backed up to {file}: Slurm {made.release}, {len(made.files)} files")


@cluster_app.command("restore")
def cluster_restore(
    file: Annotated[Path, typer.Argument(help="A file of `cluster backup`.")],
    name: NameOption = "cellblock",
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Give a cluster that runs, without jobs, the state and accounting of a backup.

    What it had until then is backed up first.
    """
    from cellblock.cli.views import make_view
    from cellblock.cluster.backup import restore
    from cellblock.events import Events

    events = Events()
    with make_view(log, events):
        before = restore(name, file, events)
    if as_json:
        print_json({"cluster": name, "restored": str(file), "before": str(before)})
    else:
        print(f"cluster {name} has what {file} holds; what it had before is in {before}")
