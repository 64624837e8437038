# SPDX-License-Identifier: Apache-2.0
"""Renders deploy/kubernetes: the jail's volume, the Job that fills it, and its backups.

It works with and without Slurm's pods beside them. Each Linux capability of these pods was taken away once to
see what fails (docs/jail-kubernetes.md).
"""

from __future__ import annotations

import difflib
import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from zoneinfo import available_timezones

import jinja2

from cellblock import paths
from cellblock.cluster.definition.kubernetes_value_types import (
    EFFECTS,
    LABEL_KEY,
    LABEL_VALUE,
    SUBDOMAIN,
    TOLERATION,
)
from cellblock.errors import CellblockError, UsageError
from cellblock.text.amount import refuse_without_unit
from cellblock.yaml_source import nearest

KINDS = ("namespace", "claim", "init", "backup", "restore")

ASSEMBLE = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP")
"""What writing a tree takes."""
UPGRADE = (*ASSEMBLE, "SYS_CHROOT")
"""ldconfig changes its root to the jail."""
BACKUP = ("DAC_OVERRIDE",)
"""Users' files are theirs alone. DAC_READ_SEARCH would do, but with it a pod can open files of the node by
handle (open_by_handle_at(2)), and the Pod Security Standard `baseline` refuses it."""

_NAME = r"[a-z0-9]([-a-z0-9]{0,50}[a-z0-9])?"
"""RFC 1123 label, with room for what is added to it."""
_FIELDS = (
    ("minute", 0, 59, ""),
    ("hour", 0, 23, ""),
    ("day of month", 1, 31, ""),
    ("month", 1, 12, "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"),
    ("day of week", 0, 6, "sun|mon|tue|wed|thu|fri|sat"),
)
"""Of a schedule: name, first and last number, names of numbers. Kubernetes knows no 7 for Sunday."""


@dataclass(frozen=True)
class BackupPlan:
    """When and where. `secret` is a Secret's name; `arguments` go to `jail backup`."""

    repository: str
    secret: str
    schedule: str = "17 3 * * *"
    arguments: tuple[str, ...] = ("--keep-daily", "7", "--keep-weekly", "5", "--keep-monthly", "12")
    time_zone: str = ""
    """Of the schedule, by its name in the IANA database (none: that of the controller)."""


@dataclass(frozen=True)
class RestorePlan:
    """What to bring back, as `jail restore` takes it."""

    snapshot: str = "latest"
    path: str = ""
    replace: bool = False


@dataclass(frozen=True)
class Toleration:
    """Of a taint: an empty `value` tolerates any, an empty `effect` each."""

    key: str
    value: str = ""
    effect: str = ""

    @staticmethod
    def parse(text: str) -> Toleration:
        """KEY[=VALUE][:EFFECT], as `kubectl taint` writes it. Raises UsageError."""
        found = re.fullmatch(TOLERATION, text)
        if not found:
            raise UsageError(
                f"--toleration {text!r} is no toleration",
                hint=f"KEY[=VALUE][:EFFECT], as gpu=true:NoSchedule; effects: {', '.join(EFFECTS)}",
            )
        return Toleration(found["key"], found["value"] or "", found["effect"] or "")


@dataclass(frozen=True)
class KubernetesRequest:
    """What to render. `image` is jail-init in a registry, `source` the jail as `jail init` takes it."""

    image: str = ""
    source: str = ""
    kinds: tuple[str, ...] = ("claim", "init")
    namespace: str = "slurm"
    claim: str = "jail"
    size: str = "500Gi"
    storage_class: str = ""
    shards: int = 1
    upgrade: bool = False
    drained: bool = False
    allow_lossy: bool = False
    registry: str = ""
    """Secret to read the jail's image with."""
    pull_secrets: tuple[str, ...] = ()
    """Secrets by which nodes pull `image`."""
    plain_http: bool = False
    ca: str = ""
    """ConfigMap whose `ca.crt` holds authorities to trust for the registry of `source`."""
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    deadline_s: int = 14_400
    backup: BackupPlan | None = None
    restore: RestorePlan = field(default_factory=RestorePlan)


def parse_selector(text: str) -> tuple[str, str]:
    """KEY=VALUE of a node's label. Raises UsageError."""
    found = re.fullmatch(rf"{LABEL_KEY}={LABEL_VALUE}", text)
    if not found:
        raise UsageError(f"--node-selector {text!r} is no label", hint="KEY=VALUE, as pool=storage")
    return found["key"], found["value"]


def render(request: KubernetesRequest, templates: Path | None = None) -> dict[str, str]:
    """File name -> YAML, in the order to apply them. Raises UsageError for what Kubernetes would refuse."""
    _check(request)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates or paths.PROJECT / "deploy" / "kubernetes"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    context = {**vars(request), "job": _job(request), "restoring": _restoring(request.restore)}
    texts = {}
    for kind in request.kinds:
        try:
            text = environment.get_template(f"{kind}.yaml.j2").render(context, **_pod(request, kind))
        except jinja2.TemplateError as error:
            raise CellblockError(
                f"deploy/kubernetes/{kind}.yaml.j2: {error}", hint=f"templates know: {', '.join(context)}"
            ) from error
        texts[f"jail-{kind}.yaml"] = text
    return texts


def _pod(request: KubernetesRequest, kind: str) -> dict[str, object]:
    """The arguments and capabilities of the pod of `kind`."""
    plain = ["--log", "plain"]
    if kind == "backup":
        assert request.backup
        return {
            "arguments": ["backup", "/mnt/jail", *request.backup.arguments, *plain],
            "capabilities": BACKUP,
        }
    lossy = ["--allow-lossy"] if request.allow_lossy else []
    if kind == "restore":
        what = request.restore
        chosen = ["--snapshot", what.snapshot] if what.snapshot != "latest" else []
        chosen += ["--path", what.path] if what.path else []
        chosen += ["--replace"] if what.replace else []
        return {"arguments": ["restore", "/mnt/jail", *chosen, *lossy, *plain], "capabilities": ASSEMBLE}
    # A writer on another node that was killed counts as dead after half a minute of silence.
    arguments = ["init", request.source, "/mnt/jail", "--wait", "120", *plain]
    arguments += ["--shards", str(request.shards)] if request.shards > 1 else []
    arguments += ["--upgrade"] if request.upgrade else []
    arguments += ["--drained"] if request.drained else []
    arguments += lossy
    return {"arguments": arguments, "capabilities": UPGRADE if request.upgrade else ASSEMBLE}


def _job(request: KubernetesRequest) -> str:
    told = [request.image, request.source, str(request.shards), str(request.upgrade), str(request.drained)]
    told += ["lossy"] if request.allow_lossy else []
    return f"{request.claim}-init-{hashlib.sha256(' '.join(told).encode()).hexdigest()[:8]}"


def _restoring(plan: RestorePlan) -> str:
    """What is added to the name of a Job that does not bring all of the newest snapshot back."""
    if plan == RestorePlan():
        return ""
    return "-" + hashlib.sha256(f"{plan.snapshot} {plan.path} {plan.replace}".encode()).hexdigest()[:8]


def _check(request: KubernetesRequest) -> None:
    for what, name in (("--namespace", request.namespace), ("--claim", request.claim)):
        if not re.fullmatch(_NAME, name):
            raise UsageError(
                f"{what} {name!r} is no name in Kubernetes", hint="lower case letters, digits and dashes"
            )
    for what, name in (
        ("--storage-class", request.storage_class),
        ("--registry-secret", request.registry),
        ("--backup-secret", request.backup.secret if request.backup else ""),
        ("--registry-ca", request.ca),
        *(("--pull-secret", name) for name in request.pull_secrets),
    ):
        if name and not re.fullmatch(SUBDOMAIN, name):
            raise UsageError(
                f"{what} {name!r} is no name in Kubernetes", hint="lower case letters, digits, dashes, dots"
            )
    _check_images(request)
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?([KMGTPE]i?)?", request.size) or not re.search(
        "[1-9]", request.size
    ):
        raise UsageError(f"--size {request.size!r} is no quantity", hint="for example 500Gi")
    refuse_without_unit("--size", request.size, "Gi")
    unknown = set(request.kinds) - set(KINDS)
    if unknown:
        first = min(unknown)
        raise UsageError(
            f"there is no kind of manifest '{first}'; {nearest(first, KINDS)}",
            hint=f"one of: {', '.join(KINDS)}",
        )
    if {"backup", "restore"} & set(request.kinds) and request.backup is None:
        raise UsageError("a backup needs a place", hint="--repository s3:ADDRESS/BUCKET --backup-secret NAME")
    if request.drained and not request.upgrade:
        raise UsageError("--drained goes with --upgrade", hint="add --upgrade, or leave --drained out")
    if request.restore.path and not request.restore.path.startswith("/"):
        raise UsageError(
            f"--path {request.restore.path!r} does not begin at the jail's root", hint="for example /home/ada"
        )
    if not re.fullmatch(r"latest|[0-9a-f]{8,64}", request.restore.snapshot):
        raise UsageError(
            f"--snapshot {request.restore.snapshot!r} is no snapshot's id",
            hint="`build.py jail backup VOLUME REPO --list` lists them",
        )
    if request.backup:
        _check_schedule(request.backup.schedule)
        zone = request.backup.time_zone
        if zone and not re.fullmatch(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}", zone):
            raise UsageError(f"--time-zone {zone!r} is no time zone", hint="for example Europe/Zurich")
        known = available_timezones() if zone else set()  # empty on a machine without tzdata
        if known and zone not in known:
            near = difflib.get_close_matches(zone, known, n=1)
            raise UsageError(
                f"--time-zone {zone}: there is no such time zone",
                hint=f"did you mean {near[0]}?" if near else "for example Europe/Zurich",
            )


def _check_images(request: KubernetesRequest) -> None:
    """Raises UsageError where a kind of `request` runs an image, or reads one, that is not named."""
    pods = set(request.kinds) & {"init", "backup", "restore"}
    if pods and not request.image:
        raise UsageError(
            "--image, the image jail-init that pods run, is not given",
            hint="push it, and give its HOST/PATH:TAG@DIGEST: `build.py push REPO jail-init` prints it",
        )
    if pods and not re.fullmatch(r"[^\s/]+(/[^\s/]+)+", request.image):
        raise UsageError(
            f"--image {request.image!r} is no image in a registry", hint="write HOST/PATH:TAG@DIGEST"
        )
    if "init" in pods and not request.source:
        raise UsageError(
            "--jail, the jail's image in a registry, is not given",
            hint="`build.py push REPO jail` prints HOST/PATH:TAG@DIGEST: give that with docker:// before it",
        )
    if "init" in pods and not re.fullmatch(r"docker://[^\s/]+(/[^\s/]+)+", request.source):
        raise UsageError(
            f"no pod can read the image {request.source!r}",
            hint="push it, and write docker://HOST/PATH:TAG@DIGEST",
        )


def _check_schedule(schedule: str) -> None:
    """Raises UsageError for what the CronJob controller would refuse, which says so in an event only."""
    hint = "as crontab(5): '17 3 * * *'"
    fields = schedule.split()
    if len(fields) != len(_FIELDS):
        raise UsageError(f"--schedule {schedule!r} has not five fields", hint=hint)
    for text, (name, first, last, names) in zip(fields, _FIELDS, strict=True):
        if not all(_is_range(part, first, last, names) for part in text.lower().split(",")):
            raise UsageError(f"--schedule {schedule!r}: {text!r} is no {name}", hint=hint)


def _is_range(text: str, first: int, last: int, names: str) -> bool:
    value = rf"(\d{{1,2}}{'|' + names if names else ''})"
    found = re.fullmatch(rf"(?:\*|{value}(?:-{value})?)(?:/(\d{{1,2}}))?", text)
    if not found:
        return False
    low, high, step = found.groups()
    numbers = {name: number for number, name in enumerate(names.split("|"), first)}
    ends = [numbers[end] if end in numbers else int(end) for end in (low, high) if end]
    return all(first <= end <= last for end in ends) and ends == sorted(ends) and (not step or int(step) > 0)
