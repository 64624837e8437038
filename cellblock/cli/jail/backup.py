# SPDX-License-Identifier: Apache-2.0
"""`build.py jail backup | restore`: stores a jail volume in a restic repository, and brings it back."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cellblock.cli.jail.change import VolumeArgument
from cellblock.cli.json_output import print_json
from cellblock.cli.options import AllowLossyOption, JsonOption, LogOption
from cellblock.text.printable import printable

if TYPE_CHECKING:
    from cellblock.jail.backup.backup import BackupResult
    from cellblock.jail.backup.repository import Repository
    from cellblock.jail.backup.restore import RestoreResult

_SHOWN = 20

RepositoryArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="REPO",
        help="A restic repository: a folder, s3:ADDRESS/BUCKET, rest:, sftp:, rclone: ... (default: "
        "RESTIC_REPOSITORY, or the file that RESTIC_REPOSITORY_FILE names).",
    ),
]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option("--password-file", help="File with the repository's password (or RESTIC_PASSWORD_FILE)."),
]
PasswordCommandOption = Annotated[
    str | None,
    typer.Option("--password-command", help="Command that prints it (or RESTIC_PASSWORD_COMMAND)."),
]
NameOption = Annotated[
    str | None,
    typer.Option("--name", help="Name of the volume's snapshots (default: that of its last backup)."),
]


def _keep(what: str) -> Any:
    return typer.Option(f"--keep-{what}", min=0, help=f"Keep the newest N {what}; what no rule keeps goes.")


def backup(
    volume: VolumeArgument,
    repo: RepositoryArgument = None,
    password_file: PasswordFileOption = None,
    password_command: PasswordCommandOption = None,
    name: NameOption = None,
    init: Annotated[bool, typer.Option("--init", help="Make the repository where there is none.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Only list the snapshots.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Have restic check the repository afterwards.")
    ] = False,
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="Leave out what matches this pattern, as seen in the jail: /home/*/.cache"),
    ] = None,
    keep_last: Annotated[int, _keep("last")] = 0,
    keep_hourly: Annotated[int, _keep("hourly")] = 0,
    keep_daily: Annotated[int, _keep("daily")] = 0,
    keep_weekly: Annotated[int, _keep("weekly")] = 0,
    keep_monthly: Annotated[int, _keep("monthly")] = 0,
    keep_yearly: Annotated[int, _keep("yearly")] = 0,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Store a volume in a restic repository while jobs run; status 1 when files could not be read."""
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.jail.backup import backup as code
    from cellblock.jail.backup.repository import find_repository
    from cellblock.jail.backup.retention import Keep

    repository = find_repository(repo, password_file, password_command)
    if list_:
        _print_snapshots(repository, name, as_json=as_json)
        return
    keep = Keep(keep_last, keep_hourly, keep_daily, keep_weekly, keep_monthly, keep_yearly)
    events = Events()
    options = code.BackupOptions(name, keep, tuple(exclude or ()), init, check)
    with make_view(log, events):
        result = code.backup(volume, repository, events, options)
    if as_json:
        print_json({**dataclasses.asdict(result), "seconds": round(result.seconds, 3)})
    else:
        _print_backup(result)
    if result.unread:
        raise typer.Exit(1)


def _print_backup(result: BackupResult) -> None:
    for what, paths in (("changed", result.changed), ("vanished", result.vanished)):
        for path in paths[:_SHOWN]:
            print(f"{what:9s} {_printable(path)}")
        if len(paths) > _SHOWN:
            print(f"{what:9s} ... and {len(paths) - _SHOWN} more")
    for path, why in result.unread[:_SHOWN]:
        print(f"unread    {_printable(path)}: {why}")
    since = f"since {result.parent[:8]}" if result.parent else "the first"
    print(
        f"snapshot {result.snapshot[:8]} of {result.name}, {since}: {result.files} files, "
        f"{result.bytes / 1e6:.1f} MB, {result.added / 1e6:.1f} MB new, in {result.seconds:.1f} s"
    )
    if result.changed or result.vanished:
        print("  jobs wrote meanwhile: the snapshot has those files as they were at some moment")
    if result.removed:
        print(f"  {result.removed} old snapshots removed")
    if result.unread:
        print(
            f"  {len(result.unread)} files could not be read and are not in it; no old snapshot was removed"
        )


def _print_snapshots(repository: Repository, name: str | None, *, as_json: bool) -> None:
    from cellblock.jail.backup.restic import Restic

    found = Restic(repository).snapshots(name)
    if as_json:
        print_json({"snapshots": [dataclasses.asdict(one) for one in found]})
        return
    for one in found:
        print(f"{one.short}  {one.time[:19].replace('T', ' ')}  {one.name:20s}  {one.image}")
    if not found:
        print(f"{repository} has no snapshot of a jail")


def _printable(path: str) -> str:
    return printable(os.fsencode(path).decode("utf-8", "backslashreplace"))


def restore(
    volume: VolumeArgument,
    repo: RepositoryArgument = None,
    password_file: PasswordFileOption = None,
    password_command: PasswordCommandOption = None,
    snapshot: Annotated[
        str, typer.Option(help="Id of the snapshot; `jail backup --list` lists them.")
    ] = "latest",
    name: NameOption = None,
    path: Annotated[str | None, typer.Option(help="Only this path, as seen in the jail: /home/ada")] = None,
    to: Annotated[str | None, typer.Option(help="With --path: put it there, in the jail.")] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Also where something is; that is kept in .cellblock/replaced-TIME."),
    ] = False,
    content: Annotated[
        bool, typer.Option("--content/--no-content", help="Read again and check every byte that was written.")
    ] = True,
    allow_lossy: AllowLossyOption = False,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Bring a volume back from a restic repository, all of it or nothing; or one path of it."""
    from cellblock.cli.views import make_view
    from cellblock.errors import UsageError
    from cellblock.events import Events
    from cellblock.jail.backup import restore as code
    from cellblock.jail.backup.one_path import restore_path
    from cellblock.jail.backup.repository import find_repository

    if to is not None and path is None:
        raise UsageError("--to goes with --path", hint="add --path, or leave --to out")
    repository = find_repository(repo, password_file, password_command)
    options = code.RestoreOptions(snapshot, name, replace, content, allow_lossy)
    events = Events()
    with make_view(log, events):
        if path is not None:
            result = restore_path(volume, repository, events, options, path, to)
        else:
            result = code.restore(volume, repository, events, options)
    _print_restore(result, as_json=as_json, whole=path is None)


def _print_restore(result: RestoreResult, *, as_json: bool, whole: bool) -> None:
    mended = result.mended
    if as_json:
        record = {
            "snapshot": dataclasses.asdict(result.snapshot),
            "target": str(result.target),
            "replaced": str(result.replaced) if result.replaced else None,
            "compared": dataclasses.asdict(mended) if mended else None,
            "damaged": result.damaged,
            "users": result.users,
            "seconds": round(result.seconds, 3),
        }
        print_json(record)
        return
    one = result.snapshot
    print(f"{result.target}: snapshot {one.short} of {one.name}, {one.time[:19]}, in {result.seconds:.1f} s")
    if mended:
        print(
            f"  {mended.entries} files compared with the snapshot: {mended.mended} put right that restic "
            f"loses, {len(mended.losses)} differ, {mended.moving} were written while it was made"
        )
    if whole:
        print(f"  against the image: {result.damaged} damaged, {result.users} changed by users")
    if result.replaced:
        print(f"  what was there before: {result.replaced}; remove it when nothing of it is needed")
