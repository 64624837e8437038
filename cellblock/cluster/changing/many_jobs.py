# SPDX-License-Identifier: Apache-2.0
"""Runs scontrol on many jobs, and expands many lists of nodes, in one execution in a container.

podman and Docker take ten times as long to execute something as scontrol takes for a job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import docker

from cellblock.cluster.engine import containers

# Jobs, or lists of nodes, that one command names: an argument has room for 128 KiB.
_AT_ONCE = 500
# Prints the jobs of which it fails: scontrol changes one with a command.
_EACH = """verb=$1 change=$2; shift 2
for job; do
    case $verb in update) set -- "jobid=$job" "$change" ;; *) set -- "$job" ;; esac
    scontrol "$verb" "$@" >/dev/null 2>&1 || echo "$job"
done"""
# Prints the jobs that cannot be queued again, which it ends.
_REQUEUE = """for job; do
    scontrol requeue "$job" >/dev/null 2>&1 || { echo "$job"; scancel "$job" >/dev/null 2>&1 || :; }
done"""
# One line of nodes for each argument.
_SHOW_HOSTNAMES = 'for one; do echo $(scontrol show hostnames "$one"); done'


def change_each(
    client: docker.DockerClient, cluster: str, verb: str, jobs: Sequence[str], change: str = ""
) -> set[str]:
    """`scontrol VERB` of each of `jobs`; returns those of which it failed. Raises CellblockError."""
    return _of_each(client, cluster, [_EACH, "sh", verb, change], jobs)


def requeue_each(client: docker.DockerClient, cluster: str, jobs: Sequence[str]) -> set[str]:
    """Queue each of `jobs` again; returns those that cannot be, which are ended. Raises CellblockError."""
    return _of_each(client, cluster, [_REQUEUE, "sh"], jobs)


def expand_nodes(client: docker.DockerClient, cluster: str, lists: Collection[str]) -> dict[str, set[str]]:
    """List of nodes, as jobs have it (`worker-[1-3]`) -> its nodes. Raises CellblockError."""
    found = {text: set(text.split(",")) for text in lists if "[" not in text}
    for some in _chunks([text for text in lists if "[" in text]):
        command = ["sh", "-c", _SHOW_HOSTNAMES, "sh", *some]
        lines = containers.execute(client, cluster, "controller", command).splitlines()
        found.update({text: set(line.split()) for text, line in zip(some, lines, strict=True)})
    return found


def _of_each(
    client: docker.DockerClient, cluster: str, script: Sequence[str], jobs: Sequence[str]
) -> set[str]:
    printed: set[str] = set()
    for some in _chunks(jobs):
        command = ["sh", "-c", *script, *some]
        printed.update(containers.execute(client, cluster, "controller", command).split())
    return printed


def _chunks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(texts), _AT_ONCE):
        yield texts[at : at + _AT_ONCE]
