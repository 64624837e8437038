# SPDX-License-Identifier: Apache-2.0
"""`build.py lock`: writes, checks and compares the lock files of variants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cellblock.cli.json_output import print_json
from cellblock.cli.options import JsonOption, LogOption, MirrorOption, SitesOption, variant_names
from cellblock.launcher.failure import typeable

if TYPE_CHECKING:
    from cellblock.build.package_locks import LockResult
    from cellblock.lock.diff import Change, LockDiff


def lock(
    variant: Annotated[
        str | None,
        typer.Argument(
            help="Variant to lock (default: the newest stable one of this machine's family).",
            autocompletion=variant_names,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 when the lock is not current.")
    ] = False,
    show_diff: Annotated[
        bool, typer.Option("--diff", help="Write nothing; show what locking again would change.")
    ] = False,
    mirror: MirrorOption = None,
    snapshot: Annotated[
        str | None,
        typer.Option(
            "--snapshot",
            help="State of the archive to lock, such as 20261101T000000Z: takes the place of "
            "{snapshot} in --mirror.",
        ),
    ] = None,
    sites: SitesOption = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Pin every package of every image of a variant by version and SHA-256."""
    from cellblock.build.package_locks import LockRequest, compare_lock, make_lock
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.overrides import images_options

    events = Events()
    request = LockRequest(variant, tuple(mirror or ()), snapshot, sites=tuple(sites or ()))
    only_compare = check or show_diff
    with make_view(log, events):
        result = (
            compare_lock(request, events, as_dated=not show_diff)
            if only_compare
            else make_lock(request, events)
        )
    if as_json:
        print_json(_object(result, written=not only_compare and not result.is_current))
    else:
        again = f"build.py lock {result.variant.name}{images_options(request.sites)}"
        print(_text(result, again, only_compare=only_compare, with_changes=show_diff or not check))
    if check and not result.is_current:
        raise typer.Exit(1)


def _object(result: LockResult, *, written: bool) -> dict[str, Any]:
    changes = result.changes
    return {
        "variant": result.variant.name,
        "path": str(result.path),
        "current": result.is_current,
        "written": written,
        "packages": len(result.lock.packages),
        "download_bytes": result.lock.download_size,
        "damage": result.damage.message if result.damage else None,
        "other": list(changes.other) if changes else [],
        "changes": [
            {
                "kind": change.kind,
                "package": change.name,
                "old": change.old.version if change.old else None,
                "new": change.new.version if change.new else None,
                "security": change.security,
                "images": list(change.images),
            }
            for change in (changes.changes if changes else ())
        ],
    }


def _text(result: LockResult, again: str, *, only_compare: bool, with_changes: bool) -> str:
    name, held = (
        result.variant.name,
        f"{len(result.lock.packages)} packages in {len(result.lock.images)} images",
    )
    if result.is_current:
        return f"{name}: {result.path} is current: {held}"
    if result.changes is None:
        why = f"the lock that is there cannot be used:\n{result.damage.message}" if result.damage else ""
        if only_compare:
            missing = f"{result.path} does not exist yet: {typeable(f'`{again}`')} writes it"
            return f"{name}: {why or missing}"
        return f"{name}: wrote {result.path}: {held}" + (f"; {why}" if why else "")
    lines = [f"{name}: {result.path} is not current: {_summary(result.changes)}"]
    if not only_compare:
        lines = [f"{name}: wrote {result.path}: {held}; {_summary(result.changes)}"]
    if with_changes:
        lines += _changes(result.changes, tuple(result.lock.images))
    return "\n".join(lines)


def _summary(changes: LockDiff) -> str:
    kinds = [change.kind for change in changes.changes]
    counts = [f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)]
    security = sum(change.security for change in changes.changes)
    if security:
        counts.append(f"{security} of them for security")
    return ", ".join(counts) or "; ".join(changes.other)


_NAMED = 8
"""Packages of one line that are named: `--json` has all."""


def _changes(changes: LockDiff, images: tuple[str, ...]) -> list[str]:
    """A table: mark of security, package, what happens to it, images; what moved together has one line."""
    moved: dict[str, list[Change]] = {}
    for change in changes.changes:
        if change.kind == "moved":
            moved.setdefault(_move(change), []).append(change)
    many = {where: found for where, found in moved.items() if len(found) > 1}
    single = [one for one in changes.changes if one.kind != "moved" or _move(one) not in many]
    rows = [(change.name, _what(change), _images(change, images)) for change in single]
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    lines = [
        f"  {'security' if change.security else '':8}  {name:{widths[0]}}  {what:{widths[1]}}  {where}"
        for change, (name, what, where) in zip(single, rows, strict=True)
    ]
    lines += [f"  {'':8}  {_moved(where, found)}" for where, found in many.items()]
    return [*(f"  {text}" for text in changes.other), *lines]


def _move(change: Change) -> str:
    """Which images hold the package now, and which no longer."""
    old, new = (one.images if one else () for one in (change.old, change.new))
    come, gone = (", ".join(x for x in left if x not in right) for left, right in ((new, old), (old, new)))
    return "; ".join([f"now in {come}"] * bool(come) + [f"no longer in {gone}"] * bool(gone))


def _moved(where: str, found: list[Change]) -> str:
    names = ", ".join(one.name for one in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more (--json lists them)" if len(found) > _NAMED else ""
    return f"{len(found)} packages, versions as they were, {where}: {names}{more}"


def _what(change: Change) -> str:
    old, new = change.old, change.new
    if old and new:
        words = {
            "upgraded": f"{old.version} -> {new.version}",
            "downgraded": f"{old.version} -> {new.version} (older)",
            "rebuilt": f"{new.version} (same version, other bytes)",
        }
        return words.get(change.kind, f"{new.version} (in other images)")
    return f"added {new.version}" if new else f"removed (was {old.version if old else ''})"


def _images(change: Change, images: tuple[str, ...]) -> str:
    return "all images" if set(images) <= set(change.images) else ", ".join(change.images)
