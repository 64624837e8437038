# SPDX-License-Identifier: Apache-2.0
"""`build.py matrix`: writes the configuration of a CI service that builds all variants."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import typer

from cellblock import paths
from cellblock.cli.options import SitesOption, image_names, variant_names

_SERVICES = ("github", "gitlab", "json")


def matrix(
    images: Annotated[
        list[str] | None,
        typer.Argument(help="Images to build (default: what a cluster runs).", autocompletion=image_names),
    ] = None,
    ci: Annotated[str, typer.Option("--ci", help="For what: github, gitlab or json.")] = "json",
    variant: Annotated[
        list[str] | None,
        typer.Option(
            "--variant", "-v", help="Variant; may be repeated (default: all).", autocompletion=variant_names
        ),
    ] = None,
    arch: Annotated[
        list[str] | None, typer.Option("--arch", help="Architecture; may be repeated (default: all).")
    ] = None,
    runner: Annotated[
        list[str] | None,
        typer.Option("--runner", help="ARCH=LABEL[,LABEL...]: where jobs of an architecture run."),
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option(
            help="HOST/PATH to push to (default: CELLBLOCK_REPOSITORY in the CI service's settings)."
        ),
    ] = None,
    cache: Annotated[
        str | None, typer.Option(help="HOST/PATH of the shared cache (default: the repository).")
    ] = None,
    user_secret: Annotated[
        str | None, typer.Option(help="Name of the secret that holds the registry's user.")
    ] = None,
    password_secret: Annotated[
        str | None, typer.Option(help="Name of the secret that holds its password or token.")
    ] = None,
    container: Annotated[
        str | None, typer.Option(help="Image that jobs run in (default: the runner's own system).")
    ] = None,
    checkout: Annotated[
        str | None,
        typer.Option(
            help="GitHub: action that fetches the tree, OWNER/ACTION@COMMIT (default: 4.2.2 of its own)."
        ),
    ] = None,
    branch: Annotated[str, typer.Option(help="Branch whose pushes are built.")] = "main",
    timeout: Annotated[int, typer.Option(help="Minutes after which a job is ended.")] = 90,
    locked: Annotated[bool, typer.Option("--locked", help="Build exactly what the locks say.")] = False,
    attest: Annotated[
        bool, typer.Option("--attest", help="Attach SBOM and provenance; the next two do so, too.")
    ] = False,
    key_secret: Annotated[
        str | None, typer.Option(help="Name of the secret that holds the private key to sign with (PEM).")
    ] = None,
    keyless: Annotated[
        bool, typer.Option("--keyless", help="Sign with the job's identity, by cosign, which it must have.")
    ] = False,
    sites: SitesOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write (default: print it).")
    ] = None,
    check: Annotated[
        Path | None, typer.Option(help="Write nothing; fail when this file is not what would be written.")
    ] = None,
) -> None:
    """Write the jobs that build variants on a CI service, one per variant and architecture."""
    from cellblock.ci import github, gitlab
    from cellblock.ci.matrix import plan_jobs
    from cellblock.ci.settings import CHECKOUT, Settings, parse_runners
    from cellblock.errors import UsageError
    from cellblock.project import Project
    from cellblock.yaml_source import nearest

    if ci not in _SERVICES:
        known = nearest(ci, _SERVICES)
        raise UsageError(f"--ci: there is no '{ci}'; {known}", hint="see `build.py matrix --help`")
    if output and check:
        raise UsageError("--output and --check exclude each other", hint="give one of them")
    project = Project(sites=tuple(sites or ()))
    program, folders = _as_jobs_see(project.folders)
    settings = Settings(
        repository,
        cache,
        user_secret,
        password_secret,
        parse_runners(runner or ()),
        container,
        checkout or CHECKOUT,
        branch,
        timeout,
        locked,
        attest,
        key_secret,
        keyless=keyless,
        program=program,
        sites=folders,
    )
    order = [image.name for image in project.in_order(images or ())]
    chosen = [project.variant(name) for name in dict.fromkeys(variant or project.variants)]
    runners = github.RUNNERS if ci == "github" else gitlab.RUNNERS
    planned = plan_jobs(chosen, order, arch or (), settings, runners, images or ())
    command = shlex.join(_without_output(sys.argv[1:]))
    heading = f"Written by `python3 {program} {command}`;\nwrite it again rather than edit it."
    if ci == "github":
        text = github.github_workflow(planned, heading)
    elif ci == "gitlab":
        text = gitlab.gitlab_pipeline(planned, heading)
    else:
        text = json.dumps({"jobs": [asdict(job) for job in planned.jobs]}, indent=2) + "\n"
    if check:
        _compare(check, text, f"{program} {command}")
    elif output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


def _as_jobs_see(sites: Sequence[Path]) -> tuple[str, tuple[str, ...]]:
    """The launcher and the site's folders from where a job begins: the root of what it checks out.

    That is this tree, or the folder that the command is typed in when this tree and the site's are below it.
    Raises UsageError for a folder that is in neither.
    """
    from cellblock.errors import UsageError

    here = Path.cwd()
    within = all(site.is_relative_to(paths.PROJECT) for site in sites)
    root = paths.PROJECT if within or not paths.PROJECT.is_relative_to(here) else here
    for site in sites:
        if not site.is_relative_to(root):
            raise UsageError(
                f"--images {site}: a job checks out {root}, and the folder is not in it",
                hint="have Cellblock as a submodule of the site's repository, and type this in its root: "
                "`python3 cellblock/build.py matrix --ci github --images images`",
            )
    folders = tuple(str(site.relative_to(root)) for site in sites)
    return str((paths.PROJECT / "build.py").relative_to(root)), folders


def _without_output(arguments: list[str]) -> list[str]:
    """The command line without where its output goes: the same text, written or compared."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        if word in ("--output", "-o", "--check"):
            next(words, None)
        elif not word.startswith(("--output=", "--check=")):
            kept.append(word)
    return kept


def _compare(path: Path, text: str, command: str) -> None:
    from cellblock.errors import CellblockError

    there = path.read_text(encoding="utf-8").splitlines()
    for number, (found, expected) in enumerate(zip_longest(there, text.splitlines()), 1):
        if found != expected:
            raise CellblockError(
                f"{path}:{number}: is not what would be written"
                f"\n  expected: {_line(expected)}\n  found:    {_line(found)}",
                hint=f"write it again: python3 {command} --output {shlex.quote(str(path))}",
            )


def _line(text: str | None) -> str:
    return "(the end of the file)" if text is None else text
