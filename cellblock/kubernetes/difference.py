# SPDX-License-Identifier: Apache-2.0
"""Lists what `kubectl apply -k` of a rendered cluster would change (`render kubernetes --diff`).

kubectl sends the objects to its current cluster as a dry run, so nothing is changed there. Left out are
Secrets, which are in a file of their own, and the annotations that say what an object was made from: they
would change in each object with each change of the file.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from cellblock.errors import CellblockError
from cellblock.kubernetes.description import Description
from cellblock.kubernetes.metadata import CLUSTER_FILE, NAME, VERSION
from cellblock.kubernetes.render import render, write

# Seconds that the API has for one answer.
_ANSWER_S = 20
# Objects that an apply leaves where a file has them no more. Claims are not among them: they hold data; nor
# ConfigMaps, whose names change with their content.
_LEFT = (
    "statefulsets,deployments,services,serviceaccounts,networkpolicies,poddisruptionbudgets,"
    "cronjobs,roles,rolebindings"
)

# What the API says of a change that it does not allow.
_REFUSED = re.compile(r'^The (\w+) "([^"]+)" is invalid: (.*)', re.MULTILINE)


@dataclass(frozen=True)
class Difference:
    """What an apply would change in the cluster of the context `context`."""

    context: str
    text: str = ""
    """As diff(1) prints it; without the namespace: the objects that would be made, KIND/NAME one a line."""
    is_new: bool = False
    """Whether the namespace is not there."""
    left: tuple[str, ...] = ()
    """Objects that the file has no more, as `kubectl delete` takes them: an apply leaves them."""

    def __bool__(self) -> bool:
        return bool(self.text or self.left)


def compare(cluster: Description) -> Difference:
    """Compare what `cluster` is rendered as with what is there.

    Raises CellblockError where there is no kubectl, no cluster or no right to ask it, and when the API
    refuses a change.
    """
    if shutil.which("kubectl") is None:
        raise CellblockError(
            "there is no kubectl on this machine, by which clusters are asked",
            hint="install it (Debian: `apt-get install kubernetes-client`), or leave --diff out",
        )
    context = _context()
    _kubectl(context, "version", "--output=json")
    space = cluster.place.namespace
    texts = render(_with_origin_of(context, cluster))
    objects = tuple(_objects(texts))
    with tempfile.TemporaryDirectory(prefix="cellblock-diff-") as name:
        write(Path(name), texts)
        done = _run("diff", f"--kustomize={name}")
    if f'namespaces "{space}" not found' in done.stderr:
        return Difference(context, "".join(f"{kind}/{one}\n" for kind, one in objects), is_new=True)
    if done.returncode > 1 and (refused := _REFUSED.search(done.stderr)):
        raise _not_allowed(context, space, *refused.groups())
    if done.returncode > 1:
        raise _failed(context, "diff", done)
    found = _kubectl(
        context, "get", _LEFT, f"--namespace={space}", f"--selector={NAME}=cellblock", "--output=name"
    )
    there = {
        name: (name.partition("/")[0].partition(".")[0], name.partition("/")[2]) for name in found.split()
    }
    left = tuple(sorted(name for name, one in there.items() if one not in objects))
    return Difference(context, done.stdout, left=left)


def _with_origin_of(context: str, cluster: Description) -> Description:
    """The cluster as if it were of the file and the version that the namespace there was made from."""
    space = f"namespace/{cluster.place.namespace}"
    found = _kubectl(context, "get", space, "--ignore-not-found", "--output=json")
    there = (json.loads(found)["metadata"].get("annotations") or {}) if found.strip() else {}
    return replace(
        cluster,
        source=there.get(CLUSTER_FILE, cluster.source),
        version=there.get(VERSION, cluster.version),
    )


def _objects(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Kind and name of what is rendered but for the ConfigMaps that kustomize makes."""
    for resource in yaml.safe_load(texts["kustomization.yaml"])["resources"]:
        for one in yaml.safe_load_all(texts[resource]):
            yield one["kind"].lower(), one["metadata"]["name"]


def _context() -> str:
    done = _run("config", "current-context")
    if done.returncode:
        raise CellblockError(
            "kubectl has no current context: it knows of no cluster to compare with",
            hint="name a file of contexts by KUBECONFIG, or choose one: `kubectl config get-contexts`, "
            "`kubectl config use-context NAME`",
        )
    return done.stdout.strip()


def _kubectl(context: str, *arguments: str) -> str:
    """What kubectl prints. Raises CellblockError when it fails."""
    done = _run(*arguments)
    if done.returncode:
        raise _failed(context, arguments[0], done)
    return done.stdout


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ("kubectl", f"--request-timeout={_ANSWER_S}s", *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _failed(context: str, verb: str, done: subprocess.CompletedProcess[str]) -> CellblockError:
    said = done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"]
    return CellblockError(
        f"the cluster of kubectl's context '{context}' cannot be asked (kubectl {verb}): {said[-1]}",
        hint="`kubectl auth can-i --list` says whether it answers, and what it allows; "
        "`kubectl config use-context NAME` chooses another one",
    )


def _not_allowed(context: str, space: str, kind: str, name: str, why: str) -> CellblockError:
    back = "take it back in the cluster file"
    again = f"delete the object, which an apply makes anew: `kubectl -n {space} delete {kind.lower()} {name}`"
    return CellblockError(
        f"the API of kubectl's context '{context}' refuses what an apply would change of {kind} '{name}': "
        f"{why}",
        # It holds data.
        hint=back if kind == "PersistentVolumeClaim" else f"{back}, or {again}",
    )
