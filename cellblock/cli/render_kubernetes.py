# SPDX-License-Identifier: Apache-2.0
"""`build.py render kubernetes`: writes a cluster, or the jail's volume, Job and backups, as manifests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cellblock.errors import CellblockError, UsageError

if TYPE_CHECKING:
    from cellblock.kubernetes.description import Description
    from cellblock.project import Project
    from cellblock.variants import Variant


def kubernetes(
    context: typer.Context,
    kinds: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KIND]...",
            help="namespace, claim, init, backup, restore (default: claim, init, and backup if asked).",
        ),
    ] = None,
    image: Annotated[str, typer.Option(help="The image jail-init in a registry: HOST/PATH:TAG@DIGEST.")] = "",
    jail: Annotated[str, typer.Option(help="For init: the jail's image, docker://HOST/PATH:TAG.")] = "",
    namespace: Annotated[str, typer.Option()] = "slurm",
    claim: Annotated[str, typer.Option(help="Name of the PersistentVolumeClaim.")] = "jail",
    size: Annotated[str, typer.Option(help="Its size.")] = "500Gi",
    storage_class: Annotated[
        str, typer.Option(help="Its storage class (default: the cluster's); ReadWriteMany.")
    ] = "",
    shards: Annotated[int, typer.Option(min=1, max=1000, help="How many pods fill it together.")] = 1,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Upgrade a volume that holds another image.")
    ] = False,
    drained: Annotated[
        bool, typer.Option("--drained", help="With --upgrade: no job uses it (a new C library).")
    ] = False,
    allow_lossy: Annotated[
        bool,
        typer.Option(
            "--allow-lossy", help="Go on where the claim's filesystem, NFS say, cannot hold something."
        ),
    ] = False,
    registry_secret: Annotated[
        str, typer.Option(help="Secret (kubernetes.io/dockerconfigjson) to read the jail's image with.")
    ] = "",
    plain_http: Annotated[
        bool, typer.Option("--registry-plain-http", help="Speak http to the registry of the jail's image.")
    ] = False,
    registry_ca: Annotated[
        str, typer.Option(help="ConfigMap whose ca.crt holds the authorities to trust for it.")
    ] = "",
    pull_secret: Annotated[
        list[str] | None, typer.Option(help="Secret by which nodes pull --image. May be repeated.")
    ] = None,
    node_selector: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Nodes that pods may run on. May be repeated."),
    ] = None,
    toleration: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY[=VALUE][:EFFECT]", help="Taint that pods tolerate. May be repeated."),
    ] = None,
    repository: Annotated[str, typer.Option(help="restic repository: s3:ADDRESS/BUCKET, rest:, ...")] = "",
    backup_secret: Annotated[
        str, typer.Option(help="Secret with `password` and the variables of the repository's server.")
    ] = "jail-backup",
    schedule: Annotated[str, typer.Option(help="When to back up, as crontab(5).")] = "17 3 * * *",
    time_zone: Annotated[str, typer.Option(help="Of the schedule, as Europe/Zurich.")] = "",
    snapshot: Annotated[str, typer.Option(help="For restore: the snapshot's id.")] = "latest",
    path: Annotated[str, typer.Option(help="For restore: only this path, as seen in the jail.")] = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="For restore: also where something is, which is kept.")
    ] = False,
    keep_daily: Annotated[int, typer.Option(min=0)] = 7,
    keep_weekly: Annotated[int, typer.Option(min=0)] = 5,
    keep_monthly: Annotated[int, typer.Option(min=0)] = 12,
    deadline: Annotated[int, typer.Option(min=60, help="Seconds after which a Job is given up.")] = 14_400,
    output: Annotated[Path | None, typer.Option(help="Folder to write the manifests to.")] = None,
    cluster: Annotated[
        Path | None,
        typer.Option(
            help="Render the whole cluster of this cluster file; it says what the options here say."
        ),
    ] = None,
    secrets: Annotated[
        Path | None,
        typer.Option(
            help="With --cluster: file of the secrets, made once (default: secrets.yaml in OUTPUT)."
        ),
    ] = None,
    diff: Annotated[
        bool,
        typer.Option(
            "--diff",
            help="With --cluster: write nothing; show what an apply would change in kubectl's cluster. "
            "Status 1 when something would.",
        ),
    ] = False,
) -> None:
    """Print manifests that fill, upgrade, back up and restore a jail, or write those of a whole cluster."""
    if cluster is not None:
        _refuse_options_of_the_jail(context)
        if diff:
            _difference(cluster, output or secrets)
        else:
            _whole_cluster(cluster, output, secrets)
        return
    for option, given in (("--secrets", secrets is not None), ("--diff", diff)):
        if given:
            raise UsageError(
                f"{option} goes with --cluster", hint=f"name a cluster file, or leave {option} out"
            )
    from cellblock.kubernetes.jail import (
        BackupPlan,
        KubernetesRequest,
        RestorePlan,
        Toleration,
        parse_selector,
        render,
    )

    plan = None
    if repository:
        keep = (("daily", keep_daily), ("weekly", keep_weekly), ("monthly", keep_monthly))
        rules = tuple(text for name, n in keep if n for text in (f"--keep-{name}", str(n)))
        plan = BackupPlan(repository, backup_secret, schedule, rules, time_zone)
    texts = render(
        KubernetesRequest(
            image=image,
            source=jail,
            kinds=tuple(kinds or ("claim", "init", *(("backup",) if plan else ()))),
            namespace=namespace,
            claim=claim,
            size=size,
            storage_class=storage_class,
            shards=shards,
            upgrade=upgrade,
            drained=drained,
            allow_lossy=allow_lossy,
            registry=registry_secret,
            pull_secrets=tuple(pull_secret or ()),
            plain_http=plain_http,
            ca=registry_ca,
            node_selector=tuple(map(parse_selector, node_selector or ())),
            tolerations=tuple(map(Toleration.parse, toleration or ())),
            restore=RestorePlan(snapshot, path, replace),
            deadline_s=deadline,
            backup=plan,
        )
    )
    if output is None:
        print("---\n".join(texts.values()), end="")
        return
    try:
        output.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (output / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CellblockError(
            f"{error.filename}: {error.strerror}", hint="name a folder that can be written"
        ) from error
    print(f"{output}: {', '.join(texts)}")


def _refuse_options_of_the_jail(context: typer.Context) -> None:
    """Raise UsageError for an option that says what the cluster file is to say."""
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source and source.name == "COMMANDLINE" and name not in ("cluster", "output", "secrets", "diff"):
            what = parameter.opts[0] if parameter.opts[0].startswith("-") else "KIND"
            raise UsageError(
                f"{what} does not go with --cluster: the cluster file says all of it",
                hint="leave it out; the part `kubernetes` of the file has namespace, images, jail and so on",
            )


def _describe(path: Path) -> Description:
    import hashlib

    from cellblock import __version__
    from cellblock.cluster.definition.cluster_file import load_cluster_file
    from cellblock.cluster.definition.model import SlurmVariant
    from cellblock.cluster.up_request import project_of
    from cellblock.kubernetes.description import describe

    file = load_cluster_file(path)
    project = project_of(file)
    variant = project.variant(file.variant)
    chosen = SlurmVariant(variant.name, variant.slurm.release, variant.slurm.plugin_dir)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    described = describe(file, chosen, f"{path.name}@{digest}", __version__)
    _refuse_jail_init_that_cannot_be(project, variant, described)
    return described


def _refuse_jail_init_that_cannot_be(project: Project, variant: Variant, cluster: Description) -> None:
    """Raise UsageError when pods would pull a jail-init that `variant` cannot have."""
    from cellblock.build.rendering import refusal

    image, place = project.images.get("jail-init"), cluster.place
    if not image or image.name in place.images or place.tag or not (why := refusal(variant, image)):
        return
    able = next(name for name, each in project.variants.items() if not refusal(each, image))
    raise UsageError(
        f"image {image.name} cannot be built for {variant.name}: {why}",
        hint=f"push that of another variant, and add it to `kubernetes`: "
        f"`images: {{{image.name}: {place.registry}/{image.name}:{able}}}`",
    )


def _whole_cluster(path: Path, output: Path | None, secrets: Path | None) -> None:
    from cellblock.kubernetes.render import SECRETS, render, write
    from cellblock.kubernetes.secrets import write_secrets

    if output is None:
        raise UsageError("--cluster writes a folder of manifests", hint="name it: --output DIR")
    description = _describe(path)
    texts = render(description)
    write(output, texts)
    place = secrets or output / SECRETS
    changed = write_secrets(description, place)
    print(f"{output}: {len(texts)} files; {place}: {'written' if changed else 'as it was'}")
    print(f"next: kubectl apply -f {output}/namespace.yaml -f {place} && kubectl apply -k {output}")


def _difference(path: Path, folder: Path | None) -> None:
    from cellblock.kubernetes.difference import compare

    if folder is not None:
        raise UsageError(
            f"--diff writes nothing to {folder}", hint="leave --output and --secrets out, or --diff"
        )
    description = _describe(path)
    found = compare(description)
    where = f"namespace {description.place.namespace} of kubectl's context '{found.context}'"
    if not found:
        print(f"{where} is what {path} says")
        return
    if found.is_new:
        print(f"{where} is not there; an apply would make:")
    print(found.text, end="")
    if found.left:
        print(f"{path} has these no more, and an apply leaves them; remove them:")
        print(f"  kubectl -n {description.place.namespace} delete {' '.join(found.left)}")
    raise typer.Exit(1)
