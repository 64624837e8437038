# SPDX-License-Identifier: Apache-2.0
"""Parts of the Kubernetes made from Debian's source package; to compile it takes too long for a test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cellblock.paths import PROJECT
from tests.kubernetes.from_source import names, pause_image, start

_MAKE = PROJECT / "tests/kubernetes/from_source/make-kubernetes"


def test_services_and_pods_have_their_names() -> None:
    def item(kind: str, name: str, **more: object) -> dict[str, object]:
        return {"kind": kind, "metadata": {"name": name, "namespace": "slurm"}, **more}

    pod = {"ip": "10.88.1.2", "hostname": "cpu-1"}
    away = {"ip": "10.88.1.3", "hostname": "cpu-2"}
    items = [
        item("Service", "login", spec={"clusterIP": "10.96.0.7"}),
        item("Service", "nodes", spec={"clusterIP": "None", "publishNotReadyAddresses": True}),
        item("Service", "ready", spec={"clusterIP": "None"}),
        item("Endpoints", "login", subsets=[{"addresses": [pod]}]),
        item("Endpoints", "nodes", subsets=[{"addresses": [pod], "notReadyAddresses": [away]}]),
        item("Endpoints", "ready", subsets=[{"notReadyAddresses": [away]}]),
    ]
    domain = "slurm.svc.cluster.local"
    assert list(names.lines(items)) == [
        f"10.96.0.7 login.{domain}",
        f"10.88.1.2 cpu-1.nodes.{domain} nodes.{domain}",
        f"10.88.1.3 cpu-2.nodes.{domain} nodes.{domain}",
    ]


def test_the_image_of_pods_has_one_program(tmp_path: Path) -> None:
    archive = tmp_path / "pause.tar"
    archive.write_bytes(pause_image.image(b"a program"))
    inspect = ["skopeo", "inspect", "--config", f"docker-archive:{archive}"]
    said = subprocess.run(inspect, capture_output=True, check=True).stdout
    assert json.loads(said)["config"]["Entrypoint"] == ["/pause"]
    assert pause_image.NAME == start.PAUSE


@pytest.mark.skipif(not shutil.which("apt-get"), reason="the source package comes by apt")
def test_a_mirror_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """and apt's lists of the machine are left alone"""
    for name in ("go", "gcc"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    mirror = "http://127.0.0.1:9/debian"
    done = subprocess.run(
        [_MAKE, tmp_path / "made", "source"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "DEBIAN_MIRROR": mirror},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert mirror in done.stderr or "debian-archive-keyring" in done.stderr
    assert "next: " in done.stderr.splitlines()[-1]


def test_a_step_that_is_not_there_is_said(tmp_path: Path) -> None:
    done = subprocess.run([_MAKE, tmp_path, "bake"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    # Where nothing compiles, that is said first.
    assert "there is no step 'bake'" in done.stderr or "is missing" in done.stderr
