# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes of tests and benchmark is found beside the checkout, and ends with its process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cellblock.bench.harness import real_kubernetes
from cellblock.launcher.main import kubernetes_folder

# Stands for the program that starts one: what is asked of it is what counts here.
_PROGRAM = """\
#!/bin/sh
echo "$1" >>"$2/asked"
case $1 in
up) : >"$2/processes"; echo starting; echo "$2/admin.kubeconfig" ;;
esac
"""
_USER = """\
import sys, time
from pathlib import Path
from cellblock.bench.harness import real_kubernetes
folder = Path(sys.argv[1])
real_kubernetes._LOCK = folder / "lock"
with real_kubernetes.running_kubernetes(folder / "kubernetes", folder / "kept") as one:
    print(one.configuration, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    program = tmp_path / "kubernetes"
    program.write_text(_PROGRAM)
    program.chmod(0o755)
    return tmp_path


def test_it_is_looked_for_beside_the_checkout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CELLBLOCK_KUBERNETES", raising=False)
    assert kubernetes_folder("/srv/checkout") == "/srv/shared/kubernetes"
    monkeypatch.setenv("CELLBLOCK_KUBERNETES", str(folder / "nowhere"))
    assert real_kubernetes.program() is None
    assert f"names no folder with a program `kubernetes`: {folder}/nowhere" in real_kubernetes.why_not()
    monkeypatch.setenv("CELLBLOCK_KUBERNETES", str(folder))
    monkeypatch.setenv("PATH", str(folder))
    if os.geteuid() == 0:
        assert real_kubernetes.why_not().startswith("not installed: containerd")


@pytest.mark.integration
@pytest.mark.skipif(os.geteuid() != 0, reason="the rules of a Kubernetes' network need root")
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL], ids=lambda sign: sign.name)
def test_it_ends_with_its_process(folder: Path, sign: signal.Signals) -> None:
    command = [sys.executable, "-c", _USER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout
        assert user.stdout.readline().strip() == f"{folder}/kept/admin.kubeconfig"
        assert (folder / "kept/asked").read_text() == "up\n"
        user.send_signal(sign)
    deadline = time.monotonic() + 30
    while (folder / "kept/asked").read_text() != "up\ndown\n":
        assert time.monotonic() < deadline
        time.sleep(0.1)
