# SPDX-License-Identifier: Apache-2.0
"""Lists the steps that make an image from its definition, as data for each engine and for Containerfiles.

The types of the steps are in cellblock/engine/recipe.py.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from cellblock import paths
from cellblock.build.mirrors import Archive
from cellblock.build.rendering import RenderedImage
from cellblock.cache_key import digest_of
from cellblock.definition import User
from cellblock.engine.recipe import Bootstrap, Install, Overlay, Recipe, Shell, Step
from cellblock.errors import DefinitionError


def recipe_of(
    rendered: RenderedImage,
    archive: Archive,
    staging: Path,
    *,
    references: tuple[str, ...],
    made_from: Mapping[str, str],
    reproduce: str,
) -> Recipe:
    """The recipe of an image; its rendered files are written below the empty folder `staging`.

    `references` are given to the result; `made_from`: what the engine calls the images that this one needs.
    Raises DefinitionError when its files hold something that is no file, folder or link.
    """
    lists = [*archive.lines, *archive.build_only]
    return Recipe(
        image=rendered.name,
        references=references,
        parent=rendered.parent,
        steps=(*_package_steps(rendered, archive, first=True), *definition_steps(rendered, staging, archive)),
        config=rendered.config,
        # Lists and packages of one mirror say nothing about another's.
        package_cache=paths.cache() / "apt" / f"{rendered.variant.name}-{digest_of(lists)[:8]}",
        reproduce=reproduce,
        made_from=made_from,
        local_archives=archive.local,
        sources=archive.lines,
        per_machine=rendered.per_machine,
    )


def definition_steps(
    rendered: RenderedImage, staging: Path, archive: Archive | None = None
) -> tuple[Step, ...]:
    """What a definition does besides its packages: users, files, artifacts, shell lines, or compiling.

    With `archive`, packages are installed from there after the users were made. Rendered files are written
    below the empty folder `staging`.
    """
    steps: list[Step] = []
    if rendered.compiling:
        steps.append(rendered.compiling)
    users = tuple(add_users(rendered.image.fields.users))
    if users:
        # Before packages: a package's script that would make the user finds it.
        steps.append(Shell(users, "make users", at=(_place(rendered, "users"),)))
    if archive:
        steps += _package_steps(rendered, archive, first=False)
    if rendered.image.files.is_dir():
        _write_files(rendered, staging)
        steps.append(Overlay(staging))
    steps += rendered.copies
    if rendered.run:
        steps.append(Shell(rendered.run, at=rendered.run_at))
    return tuple(steps)


def _package_steps(rendered: RenderedImage, archive: Archive, *, first: bool) -> list[Step]:
    """Bootstrapping, which comes `first`, or installing on a parent."""
    distribution = rendered.variant.distribution
    options = () if distribution.check_valid_until else ("Acquire::Check-Valid-Until=false",)
    if rendered.compiling:
        return []
    if rendered.parent is None:
        components = distribution.components(rendered.variant.cuda)
        bootstrap = Bootstrap(
            distribution.codename,
            rendered.variant.arch.debian,
            components,
            archive.lines,
            rendered.packages,
            options,
        )
        return [bootstrap] if first else []
    manuals = rendered.image.fields.manuals
    if first or not rendered.packages:
        return []
    at = (_place(rendered, "packages"),)
    return [Install(rendered.packages, options, archive.build_only, archive.preferences, manuals, at)]


def _place(rendered: RenderedImage, key: str) -> str:
    """Where a key of the definition stands: FILE:LINE: KEY."""
    source = rendered.image.source
    return f"{source.path}:{source.line((key,))}: {key}"


def _write_files(rendered: RenderedImage, staging: Path) -> None:
    """Write the image's files to `staging`: templates rendered, modes 0644 or 0755 whatever the umask was."""
    files = rendered.image.files
    for path in sorted(files.rglob("*")):
        name = path.relative_to(files)
        target = staging / name
        if path.is_symlink():
            target.symlink_to(path.readlink())
        elif path.is_dir():
            target.mkdir()
            target.chmod(0o755)
        elif path.is_file():
            mode = 0o755 if path.stat().st_mode & 0o111 else 0o644
            if str(name) in rendered.files:
                target = target.with_suffix("")
                target.write_text(rendered.files[str(name)], encoding="utf-8")
            else:
                target.write_bytes(path.read_bytes())
            target.chmod(mode)
        else:
            raise DefinitionError(
                f"{path}: only files, folders and symbolic links can be laid over a root",
                hint="make other kinds of file in `run`",
            )
    staging.chmod(0o755)


def add_users(users: Iterable[User]) -> list[str]:
    """Shell lines that add users and their groups, as passwd(5), group(5) and shadow(5) have them.

    Not by useradd(8): its day of last change and its backup files would differ at each build.
    """
    return [line for user in users for line in (*_refuse_taken(user), *_add_user(user.name, user))]


def _refuse_taken(user: User) -> list[str]:
    """Lines that fail when a package's user has the uid or gid, or the name with others."""
    lines = []
    for file, kind, number in (("passwd", "uid", user.uid), ("group", "gid", user.gid)):
        is_own, has_id = f"^{user.name}:", f"^[^:]*:[^:]*:{number}:"
        taken = f"user {user.name}: {kind} {number} is that of the line of /etc/{file} above: declare another"
        other = f"user {user.name}: /etc/{file} has the name with another {kind}, see above: declare that one"
        lines += [
            f"if grep -v '{is_own}' /etc/{file} | grep '{has_id}' >&2; then echo '{taken}' >&2; exit 1; fi",
            f"if grep '{is_own}' /etc/{file} | grep -v '{has_id}' >&2; then echo '{other}' >&2; exit 1; fi",
        ]
    return lines


def _add_user(name: str, user: User) -> list[str]:
    lines = {
        "passwd": f"{name}:x:{user.uid}:{user.gid}::{user.home}:{user.shell}",
        "group": f"{name}:x:{user.gid}:",
        "shadow": f"{name}:!*:::::::",
        "gshadow": f"{name}:!::",
    }
    return [
        f"grep -q '^{name}:' /etc/{file} || printf '%s\\n' {shlex.quote(line)} >> /etc/{file}"
        for file, line in lines.items()
    ]
