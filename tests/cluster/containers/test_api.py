# SPDX-License-Identifier: Apache-2.0
"""Finding the Docker API."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cellblock.cluster.engine import api
from cellblock.cluster.facts.host import Limit
from cellblock.errors import CellblockError


@pytest.fixture(autouse=True)
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(api, "_RUN", tmp_path / "run")
    return tmp_path / "run"


def test_containers_conf_where_limits_cannot_be_raised_and_there_is_no_systemd() -> None:
    text = api.containers_conf((Limit("nofile", 20000), Limit("memlock", -1)), runc=True, systemd=False)
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "[containers]",
        'default_ulimits = ["nofile=20000:20000", "memlock=-1:-1"]',
        "[engine]",
        'events_logger = "file"',
        "exit_command_delay = 60",
        'runtime = "runc"',
        'cgroup_manager = "cgroupfs"',
    ]


def test_containers_conf_leaves_podmans_choices_where_they_work() -> None:
    text = api.containers_conf((), runc=False, systemd=True)
    assert "runtime" not in text
    assert "cgroup_manager" not in text


def test_docker_that_does_not_run_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with (
        pytest.raises(
            CellblockError, match=r"no Docker API: nothing answers at unix://.*none\.sock"
        ) as caught,
        api.connect("docker"),
    ):
        pass
    assert caught.value.hint == "correct DOCKER_HOST, or unset it, or use podman: --engine podman"


def test_podman_that_is_not_installed_is_a_clear_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(CellblockError, match="no Docker API: podman is not installed") as caught,
        api.connect("podman"),
    ):
        pass
    assert "apt-get install podman" in caught.value.hint


def test_a_podman_that_fails_says_so_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    podman = tmp_path / "bin" / "podman"
    podman.parent.mkdir()
    podman.write_text("#!/bin/sh\necho storage is broken >&2\nexit 1\n")
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{podman.parent}:/usr/bin:/bin")
    with (
        pytest.raises(CellblockError, match="podman's service did not start: storage is broken"),
        api.connect("podman"),
    ):
        pass


_ASK = """
from pathlib import Path
from cellblock.cluster.engine import api
api._RUN = Path({folder!r})
with api.connect("podman") as client:
    client.ping()
"""


_URLS = """
from pathlib import Path
import requests
from cellblock.cluster.engine import api
api._RUN = Path({folder!r})
send = requests.Session.send
def record(self, request, **options):
    print(request.url)
    return send(self, request, **options)
requests.Session.send = record
with api.connect("podman") as client:
    print("connected")
    assert client.api._version == client.version()["ApiVersion"]
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="podman's service runs as root")
def test_podman_is_not_asked_for_the_packages_of_its_programs() -> None:
    """/version takes half a second, and each command would ask for it."""
    folder = Path("/run/cellblock") / f"test-{os.getpid()}"
    script = _URLS.format(folder=str(folder))
    try:
        for _ in range(2):
            done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
            asked, _, later = done.stdout.partition("connected\n")
            assert asked.splitlines()
            assert {url.rpartition("/")[2] for url in asked.splitlines()} == {"_ping"}
            assert later.rstrip().endswith("/version")
    finally:
        subprocess.run(["pkill", "-f", f"unix://{folder}/"], check=False)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="podman's service runs as root")
def test_who_has_lower_limits_has_a_service_of_his_own(tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    folder = Path("/run/cellblock") / f"test-{os.getpid()}"
    script = _ASK.format(folder=str(folder))
    try:
        for limit in (hard, hard - 1):
            lowered = ["prlimit", f"--nofile={limit}:{limit}", sys.executable, "-c", script]
            subprocess.run(lowered, check=True)
        asked = sorted(text.read_text() for text in folder.glob("*/containers.conf"))
        assert len(asked) == 2
        assert any(f"nofile={hard - 1}:" in text for text in asked)
    finally:
        subprocess.run(["pkill", "-f", f"unix://{folder}/"], check=False)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="podman's service runs as root")
def test_a_service_that_ends_takes_nothing_from_the_one_after_it() -> None:
    folder = Path("/run/cellblock") / f"test-{os.getpid()}"
    script = _ASK.format(folder=str(folder))
    try:
        subprocess.run([sys.executable, "-c", script], check=True)
        (link,) = folder.glob("*/podman.sock")
        first = link.resolve()
        # As when it was about to end: nobody finds it, and another is started.
        link.unlink()
        subprocess.run([sys.executable, "-c", script], check=True)
        second = link.resolve()
        assert second != first
        subprocess.run(["pkill", "-TERM", "-f", f"unix://{first}"], check=True)
        until = time.monotonic() + 60
        while first.exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert not first.exists()
        assert link.resolve() == second
        assert second.exists()
        # Many at once start one, not one each.
        link.unlink()
        asking = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(4)]
        assert [process.wait() for process in asking] == [0] * 4
        assert len(list(link.parent.glob("podman-*.sock"))) == 2
    finally:
        subprocess.run(["pkill", "-f", f"unix://{folder}/"], check=False)
        shutil.rmtree(folder, ignore_errors=True)
