"""`build.py render kubernetes`: the jail's volume, its Job and its backups as manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cellblock.errors import CellblockError


def kubernetes(
    image: Annotated[str, typer.Option(help="The image jail-init in a registry: HOST/PATH:TAG@DIGEST.")],
    jail: Annotated[str, typer.Option(help="The jail's image: docker://HOST/PATH:TAG@DIGEST.")],
    kinds: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KIND]...",
            help="claim, init, backup, restore (default: claim, init, and backup if asked).",
        ),
    ] = None,
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
    repository: Annotated[str, typer.Option(help="restic repository: s3:ADDRESS/BUCKET, rest:, ...")] = "",
    backup_secret: Annotated[
        str, typer.Option(help="Secret with `password` and the variables of the repository's server.")
    ] = "jail-backup",
    schedule: Annotated[str, typer.Option(help="When to back up, as crontab(5).")] = "17 3 * * *",
    keep_daily: Annotated[int, typer.Option(min=0)] = 7,
    keep_weekly: Annotated[int, typer.Option(min=0)] = 5,
    keep_monthly: Annotated[int, typer.Option(min=0)] = 12,
    deadline: Annotated[int, typer.Option(min=60, help="Seconds after which a Job is given up.")] = 14_400,
    output: Annotated[Path | None, typer.Option(help="Folder to write one file a kind to.")] = None,
) -> None:
    """Print manifests that fill, upgrade, back up and restore a jail in Kubernetes."""
    from cellblock.cluster.kubernetes import BackupPlan, KubernetesRequest, render

    plan = None
    if repository:
        keep = (("daily", keep_daily), ("weekly", keep_weekly), ("monthly", keep_monthly))
        rules = tuple(text for name, n in keep if n for text in (f"--keep-{name}", str(n)))
        plan = BackupPlan(repository, backup_secret, schedule, rules)
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
