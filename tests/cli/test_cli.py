# SPDX-License-Identifier: Apache-2.0
"""The command line as a person uses it: what is printed where, and the exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from cellblock.cli.app import app
from cellblock.cli.images.build import input_paths
from cellblock.cluster.facts.state import ClusterState
from cellblock.launcher.up_to_date import states_of
from cellblock.paths import PROJECT
from cellblock.project import Project


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
        (("up", "mine"), "  next: `python3 build.py up --name mine`, if that is a cluster\n"),
        (("status", "mine", "yours"), "(mine yours)\n"),
        (("push", "http://localhost:5000/x"), "next: write localhost:5000/x, with --plain-http"),
        (("push", "https://registry.example/x"), "next: write registry.example/x\n"),
        (
            ("push", "registry.example/x", "--ca", "/no/such"),
            "--ca /no/such: there is no such file of certificate",
        ),
        (
            ("push", "registry.example/x", "--digests", "/proc/sys/d.json"),
            "--digests /proc/sys/d.json: its folder cannot be written",
        ),
        (("up", "--cluster", "nope.yaml"), "next: check the path"),
        *(
            ((*words, image, "/nowhere", *more), f"image {image} is no jail")
            for words, more in (
                (("jail", "upgrade"), ("--plan",)),
                (("jail", "assemble"), ()),
                (("jail", "init"), ()),
            )
            for image in ("worker", "controller", "jail-init")
        ),
        (("jail", "upgrade", "worker", "/nowhere"), "next: name an image that is one: jail, jail-devel"),
        (("up", "--jail", "worker"), "--jail: image worker is no jail"),
        (("shell", "srun -N2 hostname | sort"), "leave the quotes out"),
        (("shell", "--user", "ada", "srun -N2"), "shell --user ada -- sh -c '...'`"),
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
    assert "error: there is no cluster nowhere\n  next: start it: `python3 build.py up --name" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("target", ["status", "shell"])
def test_a_cluster_that_was_stopped_is_not_said_to_be_unknown(target: str, tmp_path: Path) -> None:
    (tmp_path / "clusters/mine/volume").mkdir(parents=True)
    done = run(target, "--name", "mine", CELLBLOCK_STATE=str(tmp_path))
    assert done.returncode == 1
    assert "error: cluster mine is stopped; what is in its jail is kept\n  next: start it" in done.stderr


def test_down_of_a_cluster_that_is_not_there_names_those_that_are_and_makes_no_folder(tmp_path: Path) -> None:
    (tmp_path / "clusters" / "mine").mkdir(parents=True)
    done = run("down", "--name", "nope", CELLBLOCK_STATE=str(tmp_path))
    if "Docker API" in done.stderr:
        pytest.skip("no engine answers here")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "error: there is no cluster nope; clusters of this machine: mine\n" in done.stderr
    assert "next: see `python3 build.py clusters`" in done.stderr
    assert not (tmp_path / "clusters" / "nope").exists()


FAILURES = [
    (
        ("why", "wroker"),
        2,
        "there is no image 'wroker'; did you mean 'worker'?",
        "see `python3 build.py targets`",
    ),
    (("why", "--nope"), 2, "No such option: --nope", "`python3 build.py why --help` lists what there is"),
    (
        ("jail", "verify", "/nowhere"),
        1,
        "/nowhere holds no jail yet",
        "`python3 build.py jail assemble SOURCE VOLUME`",
    ),
    (("jail", "upgrade", "./nothing", "/nowhere"), 1, "/nowhere holds no jail", "jail assemble"),
]


@pytest.mark.parametrize(("arguments", "status", "error", "next_step"), FAILURES)
def test_a_failure_is_one_object_where_json_is_asked_for(
    arguments: tuple[str, ...], status: int, error: str, next_step: str
) -> None:
    done = run(*arguments, "--json")
    assert done.returncode == status
    told = json.loads(done.stdout)
    assert (told["error"][: len(error)], told["status"]) == (error, status)
    assert next_step in told["next"]
    assert done.stderr.startswith(f"error: {error}")


@pytest.mark.parametrize(("arguments", "status", "error", "next_step"), FAILURES)
@pytest.mark.parametrize("log", [("--log", "json"), ("--log=json",)])
def test_an_error_is_one_line_of_json_in_a_log_of_json(
    arguments: tuple[str, ...], status: int, error: str, next_step: str, log: tuple[str, ...]
) -> None:
    done = run(*arguments, *log)
    assert (done.returncode, done.stdout) == (status, "")
    (line,) = done.stderr.splitlines()
    told = json.loads(line)
    assert (told["event"], told["error"][: len(error)]) == ("error", error)
    assert next_step in told["next"]


def test_what_the_command_of_shell_is_told_is_no_option_of_shell() -> None:
    done = run("shell", "--name", "nowhere", "sinfo", "--json", CELLBLOCK_STATE="/nonexistent")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: there is no cluster nowhere")


@pytest.mark.parametrize(
    "arguments", [("targets",), ("targets", "--json"), ("--help",), ("why", "wroker"), ("plan",)]
)
def test_a_reader_that_is_gone_ends_a_command_quietly(arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "cellblock.cli", *arguments]
    fails = arguments[0] == "why"
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE if fails else writer,
        stderr=writer if fails else subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert done.returncode == 141
    said = ((done.stdout or b"") + (done.stderr or b"")).splitlines()
    # `plan` tells of package lists that it fetches, where nothing has yet.
    assert [line for line in said if not line.startswith(b"lock: ")] == []


def as_nobody(arguments: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as an ordinary user, with the clusters in `folder`/state."""
    user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"]
    reads = [f"--{kind}-caps=-all,+dac_read_search" for kind in ("inh", "ambient")]
    return subprocess.run(
        ["setpriv", *user, *reads, sys.executable, "-m", "cellblock.cli", *arguments],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "CELLBLOCK_CACHE": str(folder / "cache"),
            "CELLBLOCK_STATE": str(folder / "state"),
        },
        check=False,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
@pytest.mark.parametrize(
    "arguments",
    [
        ("build", "base"),
        ("up",),
        ("cache", "check"),
        ("jail", "verify", "/mnt"),
        ("down", "--name", "theirs"),
        ("shell", "--name", "theirs"),
        ("shell", "--name", "theirs", "--admin", "sinfo"),
        ("status", "--name", "theirs"),
    ],
)
def test_who_forgot_sudo_is_told(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Where root has started a cluster. The user reads all, so that the checkout may lie anywhere."""
    cluster = tmp_path / "state/clusters/theirs"
    cluster.mkdir(parents=True)
    known = ClusterState("theirs", "debian13", "24.11", "podman", [], [], 2222, str(tmp_path / "volume"), "")
    (cluster / "state.json").write_text(json.dumps(asdict(known)))
    done = as_nobody(arguments, tmp_path)
    assert done.returncode == 1, done.stderr
    assert "  next: run this as root (sudo)" in done.stderr or "  next: run as root" in done.stderr


def test_output_that_cannot_be_written_is_told_once() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "cellblock.cli", "targets"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "error: what is printed, or a file: No space left on device"
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="filling a volume needs root")
@pytest.mark.parametrize("name", ["nope.tar", "nope.tar.zst", "nope.tgz"])
def test_a_tar_that_is_not_there_is_called_a_file(name: str, tmp_path: Path) -> None:
    done = run("jail", "assemble", name, str(tmp_path / "volume"))
    assert done.returncode == 1
    assert f"error: there is no file {Path(name).absolute()}" in done.stderr
    assert "podman" not in done.stderr
    assert not (tmp_path / "volume").exists()


def test_the_old_name_of_the_native_engine_is_refused_with_the_new_one() -> None:
    done = run("build", "--engine", "buildah")
    assert done.returncode == 2
    assert "'buildah' is now called 'native'" in done.stderr


def test_a_build_with_nothing_to_do_looks_at_all_code_first() -> None:
    looked_at = states_of(input_paths())
    for name in ("cli/images/build.py", "build/run.py", "engine/recipe.py", "launcher/up_to_date.py"):
        assert str(PROJECT / "cellblock" / name) in looked_at


def test_completion_knows_images_and_variants() -> None:
    complete = {"_BUILD.PY_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    assert run(**complete, COMP_WORDS="build.py build wor").stdout.split() == ["worker"]
    complete["COMP_CWORD"] = "3"
    variants = run(**complete, COMP_WORDS="build.py build --variant debian1").stdout.split()
    assert {"debian12", "debian13", "debian14"} <= set(variants)


@pytest.mark.skipif(os.geteuid() != 0, reason="building images needs root")
@pytest.mark.integration
def test_the_image_of_a_layout_is_found_without_a_tag_and_refused_when_it_is_no_jail(tmp_path: Path) -> None:
    layout, volume = f"oci:{tmp_path}/layout", str(tmp_path / "volume")
    done = run("build", "slurm", "--variant", "debian13", "--output", layout)
    assert done.returncode == 0, done.stderr
    done = run("jail", "assemble", layout, volume)
    assert done.returncode == 1
    assert f"error: {layout} (sha256:" in done.stderr
    assert "is no jail: it has no /etc/cellblock/jail-release" in done.stderr
    assert run("build", "slurm", "--variant", "debian13").stdout == "debian13: all 2 images are up to date\n"
    assert run("build", "base", "--variant", "debian13").stdout == "debian13: the image is up to date\n"


@pytest.mark.parametrize("command", ["build", "verify", "matrix"])
def test_help_does_not_call_all_what_leaves_out_images(command: str) -> None:
    left_out = [name for name, image in Project().images.items() if not image.fields.default]
    assert "jail-devel" in left_out
    told = " ".join(run(command, "--help").stdout.split())
    assert "(default: what a cluster runs)" in told


def groups(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Each group of commands by its words, with the names in it."""
    below = getattr(command, "commands", {})
    if below:
        yield words, sorted(below)
    for name, each in below.items():
        yield from groups(each, (*words, name))


@pytest.mark.parametrize(("words", "names"), [*groups(get_command(app))])
def test_a_misspelt_command_gets_a_suggestion_at_each_level(words: tuple[str, ...], names: list[str]) -> None:
    name = max(names, key=len)
    done = run(*words, name[:-2] + name[-1] + name[-2])
    assert done.returncode == 2
    assert "Did you mean" in done.stderr
    assert f"'{name}'" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_an_ordinary_user_is_told_why_it_is_unknown_whether_clusters_run(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / "state/clusters" / name
        folder.mkdir(parents=True)
        known = ClusterState(name, "debian13", "24.11", "podman", [], [], 2222, str(tmp_path / "volume"))
        (folder / "state.json").write_text(json.dumps(asdict(known)))
    done = as_nobody(("clusters",), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[3:] == [
        "one, two: whether it runs is unknown: clusters are containers of root's podman",
        "  next: run this as root (sudo)",
    ]


@pytest.mark.parametrize("command", ["status", "history", "diff"])
@pytest.mark.parametrize("there", ["", "theirs/__init__.py"])
def test_a_clusters_name_in_the_place_of_a_volume_is_told_where_that_is(
    command: str, there: str, tmp_path: Path
) -> None:
    """The default cluster has the name of a folder of the checkout, which is no volume."""
    volume = tmp_path / "state/clusters/theirs/volume"
    volume.mkdir(parents=True)
    (tmp_path / there).mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "cellblock.cli", "jail", command, "theirs"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "CELLBLOCK_STATE": str(tmp_path / "state")},
    )
    assert done.returncode == 2
    assert done.stderr == (
        f"error: theirs is no directory of a volume; the cluster of that name has its jail in {volume}\n"
        f"  next: name that directory: {volume}\n"
    )
