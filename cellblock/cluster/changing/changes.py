# SPDX-License-Identifier: Apache-2.0
"""Lists what a new cluster file changes of a running cluster, and what each change does to its jobs.

It only compares, for `cluster diff` and `up`. apply.py carries the changes out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cellblock.cluster.definition.model import Role
from cellblock.cluster.engine.container_specs import Container

Effect = Literal["nothing", "new steps", "reconfigure", "restart", "sessions", "drain", "anew"]

EFFECTS: Mapping[Effect, str] = {
    "nothing": "jobs do not notice",
    "new steps": "steps and sessions that start from now on see it",
    "reconfigure": "Slurm's daemons read their configuration again; jobs go on",
    "restart": "the daemon starts anew; jobs go on, and Slurm's commands may wait for some seconds",
    "sessions": "the login node starts anew and its sessions end; jobs go on",
    "drain": "the nodes take no new jobs, and start anew when their jobs have ended",
    "anew": "the whole cluster starts anew, and only with `up --wait 0`: jobs end or are queued again",
}
"""What each effect means, the least harm first."""

# Since 23.11 `scontrol reconfigure` starts new daemons that take over, so that it changes every parameter;
# earlier ones ignore many until the daemons start anew (scontrol(1), reconfigure).
_RECONFIGURES_ALL = "23.11"
_EFFECT_OF_ROLE: Mapping[Role, Effect] = {"worker": "drain", "login": "sessions"}
# Files below config/ -> the role whose daemon reads them when it starts.
_READ_AT_START = {"accounting/slurmdbd.conf": "accounting", "slurm/slurm.conf": "rest"}
_LINE = re.compile(r"\s*([A-Za-z][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$")
# Keys of slurm.conf of which there is a line for each thing that they name.
_NAMING = ("partitionname", "nodename", "nodeset")
# What a worker's container is told of its node (images/worker).
_NODE_LINE, _GRES = "CELLBLOCK_NODE_CONF", "CELLBLOCK_GRES"
# What says to Slurm who asks; munge without. Daemons of the one and of the other are strangers.
_AUTH, _CLUSTER, _MUNGE = "CELLBLOCK_AUTH", "CELLBLOCK_CLUSTER", "munge"
_MEMORY = re.compile(r"\bRealMemory=(\d+)\b")
_SHOWN = 4


@dataclass(frozen=True)
class Change:
    """One difference: `what` in words, `effect` on jobs, `on` which hosts."""

    what: str
    effect: Effect
    on: tuple[str, ...] = ()


@dataclass(frozen=True)
class Changes:
    """All differences between a cluster that runs and what it is to be.

    `files` are those below config/ that differ; `added`, `replaced` and `removed` are host names of
    containers; `forgotten` are nodes whose record in slurmctld must go before they register anew, and `other`
    those whose generic resources differ: with the new gres.conf they are invalid until they start anew.
    """

    changes: tuple[Change, ...]
    files: tuple[str, ...]
    added: tuple[str, ...]
    replaced: tuple[str, ...]
    removed: tuple[str, ...]
    forgotten: frozenset[str]
    other: frozenset[str]
    auth: bool = False
    """Whether something else is to say to Slurm who asks."""

    @property
    def anew(self) -> bool:
        """Whether the release cannot do it but by starting the whole cluster anew."""
        return any(change.effect == "anew" for change in self.changes)

    @property
    def slurm(self) -> bool:
        """Whether a file differs that slurmctld reads."""
        return any(name.startswith("slurm/") for name in self.files)


def record(container: Container, image_id: str) -> dict[str, Any]:
    """What a cluster's state keeps of a container, to compare it with what it is to be."""
    kept: dict[str, Any] = json.loads(json.dumps(asdict(container)))
    return {**kept, "image": image_id}


def running_memory(containers: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Node set -> the MiB that its nodes have told Slurm, by the records of a cluster's containers."""
    sizes = {}
    for host, one in containers.items():
        found = _MEMORY.search(one["environment"].get(_NODE_LINE, ""))
        if found:
            sizes[host.rpartition("-")[0]] = int(found[1])
    return sizes


def compare(
    before: Mapping[str, Mapping[str, Any]],
    after: Mapping[str, Mapping[str, Any]],
    running: Iterable[str],
    old: Mapping[str, str],
    new: Mapping[str, str],
    release: str,
) -> Changes:
    """Compare containers (host name -> `record`) and files below config/, and say what each change does.

    `running` are the hosts whose containers run; `release` is Slurm's.
    """
    alive = set(running)
    # What an earlier version had no word for was not there.
    before = {host: {**dict.fromkeys(after.get(host, {})), **one} for host, one in before.items()}
    again = [host for host in after if host in before and (after[host] != before[host] or host not in alive)]
    files = tuple(sorted(name for name in {*old, *new} if old.get(name) != new.get(name)))
    for name, role in _READ_AT_START.items():
        if name in files:
            again += [host for host, one in after.items() if one["role"] == role and host not in again]
    again = [host for host in again if host in before]
    added = tuple(host for host in after if host not in before)
    removed = tuple(host for host in before if host not in after)
    changes = [
        *_file_changes(files, old, new, release),
        *_together(_added(host, after[host]) for host in added),
        *_together(_removed(host, before[host], release) for host in removed),
        *_together(_replaced(host, before[host], after[host], host in alive, release) for host in again),
    ]
    return Changes(
        tuple(sorted(changes, key=lambda change: list(EFFECTS).index(change.effect))),
        files,
        added,
        tuple(again),
        removed,
        frozenset(
            host for host in again if _told(_NODE_LINE, before[host]) != _told(_NODE_LINE, after[host])
        ),
        frozenset(one for one in again if _told(_GRES, before[one]) != _told(_GRES, after[one])),
        any(_auth(before[host]) != _auth(after[host]) for host in again),
    )


def _told(name: str, container: Mapping[str, Any]) -> object:
    """What a container is told. Of a node's line, Slurm keeps what was said first, whatever is said later."""
    return container["environment"].get(name)


def _together(changes: Iterable[Change]) -> list[Change]:
    """One change in place of equal ones on several hosts."""
    hosts: dict[tuple[str, Effect], list[str]] = {}
    for change in changes:
        hosts.setdefault((change.what, change.effect), []).extend(change.on)
    return [Change(f"{_listed(on)}: {what}", effect, tuple(on)) for (what, effect), on in hosts.items()]


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _added(host: str, after: Mapping[str, Any]) -> Change:
    return Change("new", "nothing", (host,))


def _removed(host: str, before: Mapping[str, Any], release: str) -> Change:
    return Change("no longer in the file", _effect(before, release), (host,))


def _replaced(
    host: str, before: Mapping[str, Any], after: Mapping[str, Any], alive: bool, release: str
) -> Change:
    what = "; ".join(_differences(before, after))
    if not alive:
        return Change("; ".join(filter(None, ["does not run", what])), "nothing", (host,))
    anew = _auth(before) != _auth(after)
    return Change(what or "its configuration", "anew" if anew else _effect(after, release), (host,))


def _auth(container: Mapping[str, Any]) -> str:
    return str(container["environment"].get(_AUTH, _MUNGE))


def _effect(container: Mapping[str, Any], release: str) -> Effect:
    effect = _EFFECT_OF_ROLE.get(container["role"], "restart")
    # 22.05 keeps jobs in COMPLETING for ever whose node is gone, and forgets what it knew of the others.
    return "anew" if effect == "drain" and release < _RECONFIGURES_ALL else effect


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """In words, what differs between two records of a container."""
    said = []
    for key in after:
        old, new = before.get(key), after[key]
        if old == new:
            continue
        if key == "image":
            said.append("another build of its image")
        elif key == "environment" and isinstance(old, dict):
            if _auth(before) != _auth(after):
                said.append(_instead("auth", _auth(before), _auth(after)))
            # The node's line says what GPUs it has, too.
            for name in sorted({*old, *new} - {_GRES, _AUTH, _CLUSTER}):
                lines = old.get(name), new.get(name)
                said += _options(*lines) if name == _NODE_LINE else [_instead(name, *lines)]
        elif key in ("ssh_port", "rest_port", "metrics_port"):
            said.append(_instead(key, old, new))
        else:
            said.append(f"{key.replace('_', ' ')} of its container")
    return [text for text in said if text]


def _instead(name: str, old: object, new: object) -> str:
    if old == new:
        return ""
    if old is None:
        return f"{name}: {new}"
    return f"{name}: no longer {old}" if new is None else f"{name}: {new} instead of {old}"


def _options(old: str | None, new: str | None) -> list[str]:
    """The options of a line, KEY=VALUE with spaces between them, that differ."""
    before, after = (dict(part.partition("=")[::2] for part in (line or "").split()) for line in (old, new))
    return [
        f"{key}={after[key]} instead of {before[key]}"
        if key in before and key in after
        else f"{key}={after[key]}"
        if key in after
        else f"no {key}"
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    ]


def _setting(key: str, old: str | None, new: str | None) -> str:
    """A line of slurm.conf that differs; empty for one that does not."""
    if old == new or "=" not in key:
        return _instead(key, old, new)
    if old is None or new is None:
        return f"{key} is {'new' if old is None else 'gone'}"
    return f"{key}: {'; '.join(_options(old, new))}"


def _file_changes(
    files: Iterable[str], old: Mapping[str, str], new: Mapping[str, str], release: str
) -> list[Change]:
    changes = []
    for file in files:
        if file.startswith("slurm/"):
            effect: Effect = "reconfigure" if release >= _RECONFIGURES_ALL else "restart"
        elif file in _READ_AT_START:
            effect = "restart"
        else:
            effect = "new steps"
        name = file.partition("/")[2]
        if name == "slurm.conf":
            before, after = _settings(old.get(file, "")), _settings(new.get(file, ""))
            texts = [_setting(key, before.get(key), after.get(key)) for key in {**before, **after}]
            changes += [Change(f"{name}: {text}", effect) for text in texts if text]
        else:
            where = "" if file.startswith("slurm/") else f" of {file.partition('/')[0]}"
            changes.append(Change(f"{name}{where}: other lines", effect))
    return changes


def _settings(text: str) -> dict[str, str]:
    """Key -> value of slurm.conf; a line that names a thing has the name in its key."""
    settings: dict[str, str] = {}
    for line in text.splitlines():
        found = _LINE.match(line)
        if not found:
            continue
        key, value = found[1], found[2]
        if key.lower() in _NAMING:
            name, _, value = value.partition(" ")
            key = f"{key}={name}"
        settings[key] = value.strip()
    return settings


def removed_partitions(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Partitions of the old slurm.conf that the new one has not -> their lines."""
    name = re.compile(r"^PartitionName=(\S+) .*$", re.MULTILINE)
    before = {found[1]: found[0] for found in name.finditer(old.get("slurm/slurm.conf", ""))}
    after = {found[1] for found in name.finditer(new.get("slurm/slurm.conf", ""))}
    return {partition: line for partition, line in before.items() if partition not in after}
