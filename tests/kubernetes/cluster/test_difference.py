# SPDX-License-Identifier: Apache-2.0
"""`render kubernetes --cluster FILE --diff`, on a real Kubernetes and without one."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cellblock.cli.app import app
from cellblock.cluster.definition.cluster_file import load_cluster_file
from cellblock.errors import CellblockError
from cellblock.kubernetes.description import describe
from cellblock.kubernetes.difference import Difference, compare
from cellblock.paths import PROJECT
from tests.kubernetes.helpers.kubernetes import Kubernetes
from tests.kubernetes.helpers.rendered import SLURM, described
from tests.kubernetes.helpers.small_cluster import Site

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("kubectl")]

# Kubernetes 1.20 gets what it takes (cellblock/kubernetes/release_1_20.py), by a kubectl that makes it first.
_KUBECTL = f"""\
#!{sys.executable}
import os, sys
from pathlib import Path
sys.path.insert(0, {str(PROJECT)!r})
from cellblock.bench.harness.real_kubernetes import older_folder
for one in sys.argv:
    if one.startswith("--kustomize="):
        older_folder(Path(one.partition("=")[2]), Path(one.partition("=")[2]))
os.execv("@REAL@", ["kubectl", *sys.argv[1:]])
"""


def difference(path: Path) -> Difference:
    """What the file at `path` would change, had it been edited, and come with another Cellblock."""
    return compare(describe(load_cluster_file(path), SLURM, "edited.yaml@0123456789ab", "another"))


def objects_of(text: str) -> set[str]:
    """What diff(1) was called with, as KIND.NAMESPACE.NAME."""
    return set(re.findall(r"^diff .*\bv1\w*\.([A-Z]\S+)$", text, re.MULTILINE))


@pytest.fixture
def kubectl(kubernetes: Kubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubectl whose current context is that of the tests' Kubernetes."""
    program = tmp_path / "kubectl"
    program.write_text(_KUBECTL.replace("@REAL@", f"{kubernetes.folder}/bin/kubectl"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("KUBECONFIG", kubernetes.configuration)


@pytest.fixture
def path(small: Site, tmp_path: Path) -> Path:
    """A copy of the cluster's file."""
    copied = tmp_path / "cluster.yaml"
    copied.write_text((small.folder / "cluster.yaml").read_text())
    return copied


def test_what_an_apply_would_change_is_shown_and_not_done(path: Path, small: Site) -> None:
    assert not difference(path)
    path.write_text(path.read_text().replace("count: 2", "count: 3"))
    found = difference(path)
    assert found.context == "test"
    assert "+  replicas: 3" in found.text
    assert objects_of(found.text) == {"StatefulSet.small.worker"}
    assert found.left == ()
    there = small.kubernetes.get("statefulset/worker", f"--namespace={small.space}")
    assert there["spec"]["replicas"] == 2


def test_objects_that_an_apply_would_leave_are_named(path: Path) -> None:
    path.write_text(path.read_text().replace("accounting: {}\n", ""))
    left = difference(path).left
    assert {"statefulset.apps/accounting", "statefulset.apps/database", "service/accounting"} <= set(left)
    assert not [one for one in left if "worker" in one or "controller" in one]


def test_a_change_that_kubernetes_refuses_names_the_object(path: Path) -> None:
    text = path.read_text()
    assert "\n  state: {size: 1Gi, storage_class: by-hand}" in text
    path.write_text(
        text.replace("state: {size: 1Gi, storage_class: by-hand}", "state: {size: 1Gi, storage_class: other}")
    )
    said = r"refuses what an apply would change of PersistentVolumeClaim 'controller-state': .*immutable"
    with pytest.raises(CellblockError, match=said) as failed:
        difference(path)
    assert failed.value.hint == "take it back in the cluster file"


def test_the_command_line_says_where_and_ends_with_status_1(path: Path, tmp_path: Path) -> None:
    path.write_text(path.read_text().replace("namespace: small", "namespace: other"))
    before = set(tmp_path.iterdir())
    done = CliRunner().invoke(app, ["render", "kubernetes", "--cluster", str(path), "--diff"])
    assert done.exit_code == 1
    first, *made = done.output.splitlines()
    assert first == "namespace other of kubectl's context 'test' is not there; an apply would make:"
    assert {"namespace/other", "statefulset/controller", "statefulset/worker"} <= set(made)
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("configuration", "said"),
    [
        ("", "kubectl has no current context"),
        (
            "{current-context: gone, contexts: [{name: gone, context: {cluster: gone}}], "
            'clusters: [{name: gone, cluster: {server: "https://127.0.0.1:1"}}]}',
            r"the cluster of kubectl's context 'gone' cannot be asked \(kubectl version\): ",
        ),
    ],
)
def test_no_cluster_is_said(
    configuration: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "none"
    file.write_text(configuration)
    monkeypatch.setenv("KUBECONFIG", str(file))
    with pytest.raises(CellblockError, match=said):
        compare(described(tmp_path))
