"""The command line as a person uses it: what is printed where, and the exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cellblock.cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def test_targets_lists_images_and_variants_and_says_what_each_is() -> None:
    done = run("targets")
    assert done.returncode == 0
    assert "worker" in done.stdout
    assert "Debian 12 (bookworm), Slurm 22.05" in done.stdout
    assert done.stdout.count("[default here]") == 1
    listed = json.loads(run("targets", "--json").stdout)
    assert listed["default_variant"] in listed["variants"]
    assert {"base", "slurm", "toolchain", "plugins", "controller", "worker", "login", "jail"} <= set(
        listed["images"]
    )


def test_every_target_has_help() -> None:
    for target in (
        "targets",
        "build",
        "lock",
        "cache",
        "cache trim",
        "up",
        "status",
        "shell",
        "down",
        "render containerfile",
        "jail assemble",
        "bench jail",
        "audit",
        "sbom",
        "attest",
        "plan",
        "why",
        "diff",
        "graph",
        "report",
        "test",
    ):
        done = run(*target.split(), "--help")
        assert done.returncode == 0, target
        assert "Usage: build.py " + target in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("why", "wroker"), "there is no image 'wroker'; did you mean 'worker'?"),
        (("build", "wroker"), "there is no image 'wroker'; did you mean 'worker'?"),
        (("build", "--variant", "debian13x"), "there is no variant 'debian13x'; did you mean 'debian13'?"),
        (("build", "--mirror", "nonsense"), "'nonsense' is neither a URL"),
        (("build", "--log", "loud"), "loud"),
        (("up", "--engine", "foo"), "there is no engine 'foo'"),
        (("up", "--name", "X Y"), "'X Y' cannot name a cluster"),
        (("up", "--workers", "0"), "0 workers"),
        (("up", "--ssh-port", "99999"), "99999 is not a port"),
        (("up", "--jail-root", "admin"), "root in the jail cannot be 'admin' to Slurm"),
        (("shell", "--admin", "--user", "ada"), "they exclude each other"),
        (("bulid",), "bulid"),
        (("push", "http://localhost:5000/x"), "next: write localhost:5000/x, with --plain-http"),
        (("push", "https://registry.example/x"), "next: write registry.example/x\n"),
    ],
)
def test_wrong_usage_is_one_message_and_status_2(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("target", ["status", "shell"])
def test_a_cluster_that_is_not_there_is_status_1_with_the_next_step(target: str, tmp_path: Path) -> None:
    done = run(target, "--name", "nowhere", CELLBLOCK_STATE=str(tmp_path))
    assert done.returncode == 1
    assert "error: there is no cluster nowhere\n  next: start it: `build.py up --name nowhere`" in done.stderr
    assert not list(tmp_path.iterdir())


def test_down_of_a_cluster_that_is_not_there_names_those_that_are_and_makes_no_folder(tmp_path: Path) -> None:
    (tmp_path / "clusters" / "mine").mkdir(parents=True)
    done = run("down", "--name", "nope", CELLBLOCK_STATE=str(tmp_path))
    if "Docker API" in done.stderr:
        pytest.skip("no engine answers here")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "error: there is no cluster nope; clusters of this machine: mine\n" in done.stderr
    assert "next: start one: `build.py up --name nope`" in done.stderr
    assert not (tmp_path / "clusters" / "nope").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="filling a volume needs root")
@pytest.mark.parametrize("name", ["nope.tar", "nope.tar.zst", "nope.tgz"])
def test_a_tar_that_is_not_there_is_called_a_file(name: str, tmp_path: Path) -> None:
    done = run("jail", "assemble", name, str(tmp_path / "volume"))
    assert done.returncode == 1
    assert f"error: there is no file {Path(name).absolute()}" in done.stderr
    assert "podman" not in done.stderr
    assert not (tmp_path / "volume").exists()


def test_completion_knows_images_and_variants() -> None:
    complete = {"_BUILD.PY_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    assert run(**complete, COMP_WORDS="build.py build wor").stdout.split() == ["worker"]
    complete["COMP_CWORD"] = "3"
    variants = run(**complete, COMP_WORDS="build.py build --variant debian1").stdout.split()
    assert {"debian12", "debian13", "debian14"} <= set(variants)
