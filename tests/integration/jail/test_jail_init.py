# SPDX-License-Identifier: Apache-2.0
"""The image jail-init and the rendered manifests, run by podman: a volume is filled, backed up and restored.

podman knows pods and claims, and no Jobs: it plays the pod of each, with the index that a Job would have set.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from cellblock.build import BuildRequest, build_images
from cellblock.cluster.engine.api import connect, podman_environment
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.verify import verify
from cellblock.jail.volume.volume import Volume
from cellblock.kubernetes.jail import KINDS, BackupPlan, KubernetesRequest, render
from cellblock.oci.layout import Layout
from tests.integration.conftest import default_variant
from tests.integration.registry import RunningRegistry
from tests.oci.layers import make_image, member

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="pods and volumes of the system's podman: needs root"),
    pytest.mark.skipif(shutil.which("catatonit") is None, reason="podman has no pods without catatonit"),
]

_FILES = 4000
_TIMEOUT_S = 120


@dataclass
class Pods:
    """Plays the pods of rendered manifests; `name` is on all that podman is asked for."""

    image: str
    source: str
    name: str = field(default_factory=lambda: f"jailinit{os.getpid()}")
    played: list[str] = field(default_factory=list)

    def podman(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            ["podman", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
            env={**os.environ, **podman_environment()},
        )
        assert not check or done.returncode == 0, f"{arguments}: {done.stderr}"
        return (done.stdout + done.stderr if arguments[0] == "logs" else done.stdout).strip()

    @property
    def volume(self) -> Path:
        """Where podman keeps the claim."""
        return Path(self.podman("volume", "inspect", "--format", "{{.Mountpoint}}", self.name))

    def request(self, shards: int = 1) -> KubernetesRequest:
        backup = BackupPlan("/mnt/jail/repository", f"{self.name}-secret", arguments=("--init",))
        return KubernetesRequest(
            self.image, self.source, kinds=KINDS, claim=self.name, shards=shards, backup=backup
        )

    def play(self, folder: Path, kind: str, index: int = 0, shards: int = 1) -> str:
        """Start the pod of a Job or CronJob; returns its container."""
        manifest = yaml.safe_load(render(self.request(shards))[f"jail-{kind}.yaml"])
        spec = manifest["spec"]
        if manifest["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        pod: dict[str, Any] = spec["template"]["spec"]
        # The registry listens on this machine's loopback address.
        pod["hostNetwork"] = True
        pod["containers"][0]["env"].append({"name": "JOB_COMPLETION_INDEX", "value": str(index)})
        name = f"{self.name}-{len(self.played)}"
        # podman makes a volume of its own of each emptyDir, by that name alone.
        for volume in pod["volumes"]:
            if "emptyDir" in volume:
                volume["name"] = f"{name}-scratch"
        for mount in pod["containers"][0]["volumeMounts"]:
            mount["name"] = f"{name}-scratch" if mount["name"] == "scratch" else mount["name"]
        file = folder / f"{name}.yaml"
        file.write_text(
            yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod})
        )
        self.played.append(name)
        self.podman("play", "kube", "--log-driver", "k8s-file", str(file))
        return f"{name}-jail"

    def end(self, container: str) -> tuple[int, str]:
        """The container's status and its log, when it has ended."""
        status = int(self.podman("wait", container))
        return status, self.podman("logs", container)

    def remove(self) -> None:
        """Everything of this name."""
        for name in self.played:
            self.podman("pod", "rm", "--force", "--time", "0", name, check=False)
            self.podman("volume", "rm", "--force", f"{name}-scratch", check=False)
        self.podman("volume", "rm", "--force", self.name, check=False)
        # podman makes a volume of a pod's secret, too.
        self.podman("volume", "rm", "--force", f"{self.name}-secret", check=False)
        self.podman("secret", "rm", f"{self.name}-secret", check=False)


@pytest.fixture(scope="module")
def image() -> str:
    """jail-init of this machine's variant."""
    variant = default_variant()
    try:
        built = build_images(BuildRequest(("jail-init",), variant, load=True), Events())
    except CellblockError as error:
        if "image jail-init cannot be built for" in str(error):
            pytest.skip(str(error))
        raise
    return built.images["jail-init"].reference


@pytest.fixture
def pods(image: str, registry: RunningRegistry, tmp_path: Path) -> Iterator[Pods]:
    """A jail of two layers in a registry, with a bit of what a jail has; an empty claim."""
    folders = [member(f"usr/share/{number:03d}") for number in range(40)]
    files = [
        member(f"usr/share/{number % 40:03d}/{number}", os.urandom(5000), owner=(0, 42 if number % 3 else 0))
        for number in range(_FILES)
    ]
    special = [
        member("usr/bin/su", "setuid", mode=0o4755),
        member("dev/null", device=(1, 3), mode=0o666),
        member("var/log/btmp", "", mode=0o660, owner=(0, 43)),
        member("private", mode=0o700, owner=(1000, 1000)),
        member("private/mine", "x", mode=0o600, owner=(1000, 1000)),
    ]
    make_image(Layout(tmp_path / "layout"), "jail", [*folders, *files], special)
    reference = f"docker://{registry.host}/tests/jail-init:1"
    argv = ["skopeo", "copy", "--quiet", "--dest-tls-verify=false", f"oci:{tmp_path}/layout:jail", reference]
    subprocess.run(argv, check=True, capture_output=True)
    with connect("podman"):  # writes the settings that podman needs on this machine
        playing = Pods(image, reference)
    playing.podman("volume", "create", playing.name)
    try:
        yield playing
    finally:
        playing.remove()


def test_two_shards_fill_a_volume_and_a_killed_one_goes_on(pods: Pods, tmp_path: Path) -> None:
    first = pods.play(tmp_path, "init", 0, shards=2)
    second = pods.play(tmp_path, "init", 1, shards=2)
    volume = Volume(pods.volume)
    deadline = time.monotonic() + _TIMEOUT_S
    while not any(volume.path.glob(".cellblock/shards-*/root/usr/share/*/*")):
        assert time.monotonic() < deadline, pods.end(second)
        time.sleep(0.01)
    pods.podman("kill", second)
    pods.end(second)
    assert pods.end(first)[0] == 0
    assert not (volume.path / "ready").exists()
    assert not volume.root.exists()
    again = pods.play(tmp_path, "init", 1, shards=2)
    status, log = pods.end(again)
    assert status == 0, log
    assert "going on with what an interrupted run left" in log
    state = volume.state()
    assert state
    assert (volume.path / "ready").read_text() == f"{state.source.id} {pods.source}\n"
    assert state.entries >= _FILES
    assert verify(volume.path, Events(), content=True).is_clean
    assert oct((volume.root / "var/log/btmp").stat().st_mode) == "0o100660"
    assert (volume.root / "dev/null").is_char_device()


def test_a_jail_is_backed_up_and_restored_by_pods(pods: Pods, tmp_path: Path) -> None:
    status, log = pods.end(pods.play(tmp_path, "init"))
    assert status == 0, log
    secret = tmp_path / "secret.yaml"
    data = {"password": base64.b64encode(b"of the tests").decode()}
    metadata = {"name": f"{pods.name}-secret"}
    secret.write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    )
    pods.podman("secret", "create", f"{pods.name}-secret", str(secret))
    status, log = pods.end(pods.play(tmp_path, "backup"))
    assert status == 0, log
    assert "snapshot" in log
    volume = Volume(pods.volume)
    argv = ["run", "--rm", "--read-only", "--volume", f"{pods.name}:/mnt/jail:ro", pods.image]
    shown = json.loads(pods.podman(*argv, "status", "/mnt/jail", "--json"))
    assert shown["source"]["reference"] == pods.source
    assert shown["last_backup"]["repository"] == "/mnt/jail/repository"
    assert (shown["writer"], shown["problems"]) == (None, [])
    before = sorted(volume.root.rglob("*"))
    shutil.rmtree(volume.root)
    shutil.rmtree(volume.private)
    status, log = pods.end(pods.play(tmp_path, "restore"))
    assert status == 0, log
    assert "0 differ" in log
    assert "against the image: 0 damaged" in log
    assert sorted(volume.root.rglob("*")) == before
