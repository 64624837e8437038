# SPDX-License-Identifier: Apache-2.0
"""The rendered manifests in a real Kubernetes: a jail is filled, backed up and restored with all options.

Manifests are for Kubernetes 1.27 and later; rendering/test_jail.py validates them. Here an older Kubernetes
may run them: `for_here` takes away what it does not know.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cellblock.bench.harness.real_kubernetes import HOST, for_here
from cellblock.build import BuildRequest, build_images, copy_images
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.oci.layout import Layout
from cellblock.paths import PROJECT
from tests.integration.conftest import default_variant
from tests.integration.registry import PASSWORD, USER, RunningRegistry, running_registry
from tests.kubernetes.helpers.kubernetes import Kubernetes
from tests.oci.layers import make_image, member

pytestmark = pytest.mark.integration

NAMESPACE = "jail-options"
CLAIM = "shared"


@dataclass(frozen=True)
class Place:
    """What the manifests name: registries, the volume's folder, and where manifests are written."""

    kubernetes: Kubernetes
    volume: Path
    folder: Path
    image: str
    """jail-init in a registry that nodes log in to."""
    jail: str
    """In a registry with a certificate of its own, that wants a login."""
    plain: str
    """The same, by http and without a login."""

    def render(self, kind: str, *options: str) -> dict[str, Any]:
        """What `render kubernetes KIND` writes, with the options that all pods take."""
        argv = [sys.executable, "-m", "cellblock.cli", "render", "kubernetes", kind, "--image", self.image]
        argv += ["--namespace", NAMESPACE, "--claim", CLAIM, "--size", "1Gi", "--storage-class", "by-hand"]
        argv += ["--pull-secret", "pull", "--node-selector", "pool=storage"]
        argv += ["--toleration", "reserved=jail:NoSchedule", *options, "--output", str(self.folder)]
        subprocess.run(argv, check=True, cwd=PROJECT, capture_output=True)
        manifest = yaml.safe_load((self.folder / f"jail-{kind}.yaml").read_text())
        assert isinstance(manifest, dict)
        return manifest

    def run(self, manifest: dict[str, Any]) -> str:
        """Apply a Job, which must succeed on the one node that it may run on; returns its log."""
        self.kubernetes.apply(for_here(manifest))
        return self.succeeds(manifest["metadata"]["name"])

    def succeeds(self, job: str) -> str:
        """The log of a Job that must succeed on the one node that it may run on."""
        succeeded, log, node = self.kubernetes.end_of(job, NAMESPACE)
        assert succeeded, log
        assert node == "node-2"
        return log


def _certificate(folder: Path) -> tuple[Path, Path]:
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=own"]
    argv += ["-addext", f"subjectAltName=IP:{HOST}", "-keyout", "key.pem", "-out", "ca.crt"]
    subprocess.run(argv, cwd=folder, check=True, capture_output=True)
    return folder / "ca.crt", folder / "key.pem"


def _push(source: str, reference: str, *options: str) -> str:
    copy = ["skopeo", "copy", "--quiet", "--dest-tls-verify=false", *options]
    subprocess.run([*copy, source, f"docker://{reference}"], check=True, capture_output=True)
    return reference


def _jail_init(layout: Path) -> str:
    """Builds jail-init of this machine's variant; returns what skopeo calls it."""
    try:
        result = build_images(BuildRequest(("jail-init",), default_variant()), Events())
    except CellblockError as error:
        if "image jail-init cannot be built for" in str(error):
            pytest.skip(str(error))
        raise
    copy_images(result, layout, ["jail-init"])
    return f"oci:{layout}:jail-init:{result.variant.name}"


def _jail(layout: Path) -> str:
    """A small jail; returns what skopeo calls it."""
    files = [member(f"usr/share/{number}", "x" * number) for number in range(200)]
    passwd = [member("etc", mode=0o755), member("etc/passwd", "root:x:0:0::/root:/bin/sh\n")]
    make_image(Layout(layout), "jail", [*passwd, *files])
    return f"oci:{layout}:jail"


@pytest.fixture(scope="module")
def place(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("jail")
    (folder / "volume").mkdir()
    ca, key = _certificate(folder)
    login = ("--dest-creds", f"{USER}:{PASSWORD}")
    jail = _jail(folder / "layout")
    with (
        # Nodes speak http to a registry on loopback.
        running_registry(folder / "nodes", password=True) as nodes,
        running_registry(folder / "own", password=True, address=HOST, certificate=(ca, key)) as own,
        running_registry(folder / "plain", address=HOST) as plain,
    ):
        made = Place(
            kubernetes,
            folder / "volume",
            folder / "manifests",
            _push(_jail_init(folder / "init"), f"{nodes.host}/tests/jail-init:1", *login),
            "docker://" + _push(jail, f"{own.host}/tests/jail:1", *login),
            "docker://" + _push(jail, f"{plain.host}/tests/jail:1"),
        )
        _prepare(made, nodes, own, ca)
        try:
            yield made
        finally:
            kubernetes("delete", "namespace", NAMESPACE)
            kubernetes("delete", "persistentvolume", "by-hand")


def _prepare(place: Place, nodes: RunningRegistry, own: RunningRegistry, ca: Path) -> None:
    """What an administrator has before the Jobs: namespace, volume, claim, secrets, and a reserved node."""
    kubernetes = place.kubernetes
    kubernetes("label", "node", "node-2", "pool=storage")
    kubernetes("taint", "node", "node-2", "reserved=jail:NoSchedule")
    kubernetes.apply(place.render("namespace"))
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "by-hand",
        "hostPath": {"path": str(place.volume)},
    }
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "by-hand"}, "spec": spec}
    kubernetes.apply(volume, place.render("claim"))
    for name, registry in (("pull", nodes), ("login", own)):
        kubernetes(
            *("create", "secret", "docker-registry", name, f"--namespace={NAMESPACE}"),
            *(
                f"--docker-server={registry.host}",
                f"--docker-username={USER}",
                f"--docker-password={PASSWORD}",
            ),
        )
    create = ("create", "--namespace", NAMESPACE)
    kubernetes(*create, "configmap", "registry-ca", f"--from-file=ca.crt={ca}")
    kubernetes(*create, "secret", "generic", "jail-backup", "--from-literal=password=of the tests")


def test_a_jail_is_filled_from_a_registry_with_its_own_authority_and_a_login(place: Place) -> None:
    private = ("--registry-ca", "registry-ca", "--registry-secret", "login")
    log = place.run(place.render("init", "--jail", place.jail, *private))
    assert (place.volume / "root/etc/passwd").is_file(), log
    assert (place.volume / "ready").read_text().split()[1] == place.jail


def test_a_registry_without_a_certificate_is_read_by_plain_http(place: Place) -> None:
    log = place.run(place.render("init", "--jail", place.plain, "--registry-plain-http"))
    assert "nothing to do" in log or "ready" in log


def test_what_was_backed_up_is_restored_by_snapshot_and_path_and_in_the_place_of_something(
    place: Place,
) -> None:
    repository = ("--repository", "/mnt/jail/repository")
    notes = place.volume / "root/home/ada/notes"
    notes.parent.mkdir(parents=True)
    notes.write_text("first\n")
    cron = place.render("backup", *repository, "--time-zone", "Europe/Zurich", "--schedule", "17 3 1 1 *")
    assert cron["spec"]["timeZone"] == "Europe/Zurich"
    container = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    container["args"].append("--init")
    place.kubernetes.apply(for_here(cron))
    snapshots = []
    for number, text in enumerate(("second\n", "third\n")):
        backup = f"backup-{number}"
        by = f"--from=cronjob/{cron['metadata']['name']}"
        place.kubernetes("create", "job", backup, by, f"--namespace={NAMESPACE}")
        place.succeeds(backup)
        snapshots = _snapshots(place.volume / "repository")
        notes.write_text(text)
    assert len(snapshots) == 2
    older = ("--snapshot", snapshots[0], "--path", "/home/ada/notes", "--replace")
    place.run(place.render("restore", *repository, *older))
    assert notes.read_text() == "first\n"
    place.run(place.render("restore", *repository, "--path", "/home/ada/notes", "--replace"))
    assert notes.read_text() == "second\n"


def _snapshots(repository: Path) -> list[str]:
    """The ids of the repository's snapshots, the oldest first."""
    argv = ["restic", "--repo", str(repository), "--no-lock", "--no-cache", "snapshots", "--json"]
    done = subprocess.run(
        argv, check=True, capture_output=True, text=True, env={"RESTIC_PASSWORD": "of the tests"}
    )
    found = sorted(json.loads(done.stdout), key=lambda each: each["time"])
    return [each["id"] for each in found]
