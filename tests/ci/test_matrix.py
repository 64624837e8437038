# SPDX-License-Identifier: Apache-2.0
"""What CI services are given: valid by their schema, sound by a linter, and run with a stand-in build.py."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cellblock.ci import gitlab
from cellblock.ci.matrix import plan_jobs
from cellblock.ci.settings import Settings, parse_runners
from cellblock.cli.__main__ import main
from cellblock.errors import UsageError
from cellblock.paths import PROJECT
from cellblock.variants import load_variants

SITE = PROJECT / "docs/examples/site/images"
SCHEMAS = {"github": "vendor.github-workflows", "gitlab": "vendor.gitlab-ci"}


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def matrix(*arguments: str) -> Done:
    """The command line in this process: starting one for each test would take too long."""
    out, err, argv = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["build.py", "matrix", *arguments]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            status = main()
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        sys.argv = argv
    return Done(status, out.getvalue(), err.getvalue())


def written(*arguments: str) -> str:
    done = matrix(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def data(*arguments: str) -> Any:
    return yaml.safe_load(written(*arguments))


OPTIONS = {
    "everything": (),
    "one": ("--arch", "arm64", "--locked", "--container", "example/runner:1", "worker", "-v", "debian13"),
    "keyless": ("--keyless", "-v", "debian13"),
    "secrets": (
        "--key-secret",
        "SIGNS",
        "--user-secret",
        "WHO",
        "--password-secret",
        "WORD",
        "--runner",
        "amd64=self-hosted,x64",
    ),
}


@pytest.mark.parametrize("service", SCHEMAS)
def test_the_output_is_valid_by_the_services_schema(tmp_path: Path, service: str) -> None:
    """All options at once: reading a service's schema takes two seconds."""
    paths = [tmp_path / f"{name}.yml" for name in OPTIONS]
    for path in paths:
        path.write_text(written("--ci", service, *OPTIONS[path.stem]))
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    schemas = [
        SCHEMAS[service],
        *(["custom.github-workflows-require-timeout"] if service == "github" else []),
    ]
    for schema in schemas:
        done = subprocess.run([*check, schema, *map(str, paths)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_a_linter_of_workflows_finds_nothing_unsafe(tmp_path: Path) -> None:
    path = tmp_path / "images.yml"
    path.write_text(written("--ci", "github"))
    command = [
        str(Path(sys.executable).with_name("zizmor")),
        "--offline",
        "--no-progress",
        "--no-config",
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_variant_has_a_job_for_each_of_its_architectures_and_then_one_that_joins_them() -> None:
    jobs = json.loads(written("--ci", "json"))["jobs"]
    seen: set[str] = set()
    for job in jobs:
        assert set(job["needs"]) <= seen, job["id"]
        seen.add(job["id"])
    variants = load_variants(PROJECT / "images" / "variants.yaml")
    builds = {(job["variant"], job["architecture"]) for job in jobs if job["kind"] == "build"}
    assert builds == {(name, arch) for name, variant in variants.items() for arch in variant.architectures}
    joins = {job["variant"]: set(job["needs"]) for job in jobs if job["kind"] == "index"}
    assert joins == {name: {f"{name}-amd64", f"{name}-arm64"} for name in variants}


def test_images_are_in_build_order_with_what_they_need() -> None:
    images = json.loads(written("worker", "--variant", "debian13"))["jobs"][0]["images"]
    assert set(images) == {"base", "slurm", "toolchain", "plugins", "worker"}
    assert images[0] == "base"
    assert images[-1] == "worker"


def test_a_variant_is_built_for_the_architectures_it_declares(tmp_path: Path) -> None:
    path = tmp_path / "variants.yaml"
    path.write_text(
        "distributions:\n"
        '  d: {id: debian, version: "13", codename: trixie, slurm: "24.11", stable: true}\n'
        "variants: {v: {distribution: d, architectures: [arm64]}}\n"
    )
    assert load_variants(path)["v"].architectures == ("arm64",)


def test_github_gives_jobs_no_more_than_they_need() -> None:
    own = data("--ci", "github", "--variant", "debian13")
    other = data(
        "--ci", "github", "--variant", "debian13", "--user-secret", "WHO", "--password-secret", "WORD"
    )
    assert own["permissions"] == other["permissions"] == {}
    for job in own["jobs"].values():
        assert job["permissions"] == {"contents": "read", "packages": "write"}
    for job in other["jobs"].values():
        assert job["permissions"] == {"contents": "read"}
        assert job["timeout-minutes"] == 90
        secret = [step for step in job["steps"] if "secrets." in str(step)]
        assert len(secret) == 1
        assert secret[0]["env"] == {
            "REGISTRY_USER": "${{ secrets.WHO }}",
            "REGISTRY_PASSWORD": "${{ secrets.WORD }}",
        }
    assert own["jobs"]["debian13"]["strategy"]["fail-fast"] is False
    assert own["concurrency"]["cancel-in-progress"] is False


def test_runners_are_chosen_by_architecture() -> None:
    options = ("--variant", "debian13", "--runner", "arm64=self-hosted,arm")
    github = data("--ci", "github", *options)["jobs"]
    assert github["debian13"]["strategy"]["matrix"]["include"] == [
        {"arch": "amd64", "runner": "ubuntu-24.04"},
        {"arch": "arm64", "runner": ["self-hosted", "arm"]},
    ]
    gitlab = data("--ci", "gitlab", *options)
    assert gitlab["debian13:arm64"]["tags"] == ["self-hosted", "arm"]
    assert gitlab["debian13:index"]["needs"] == ["debian13:amd64", "debian13:arm64"]


@pytest.mark.parametrize("service", ["github", "gitlab", "json"])
def test_no_host_is_named_but_the_one_that_was_given(service: str) -> None:
    host = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)*\.(io|com|org|net|dev|example)\b")
    assert not host.search(written("--ci", service))
    named = host.search(written("--ci", service, "--cache", "registry.example/cache", "-v", "debian13"))
    assert named
    assert named[0] == "registry.example"


def scripts(service: str) -> list[str]:
    """The shell of each job of debian13, as the service runs it."""
    jobs = data("--ci", service, "--variant", "debian13")
    if service == "github":
        return ["\n".join(step.get("run", "") for step in job["steps"]) for job in jobs["jobs"].values()]
    before = jobs["default"]["before_script"]
    return ["\n".join([*before, *job["script"]]) for name, job in jobs.items() if ":" in name]


STAND_IN = """import json, os, sys
if "--digests" in sys.argv:
    open(sys.argv[sys.argv.index("--digests") + 1], "w").close()
with open("log", "a") as log:
    log.write(json.dumps([sys.argv[1:], json.load(open(os.environ["REGISTRY_AUTH_FILE"]))]) + "\\n")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="jobs of another user than root run sudo")
@pytest.mark.parametrize("service", SCHEMAS)
def test_jobs_run_what_they_say_with_a_login_that_nobody_else_reads(tmp_path: Path, service: str) -> None:
    (tmp_path / "build.py").write_text(STAND_IN)
    login = tmp_path / "registry-auth.json"
    environment = {
        "PATH": os.environ["PATH"],
        "CELLBLOCK_REPOSITORY": "registry.example:5000/cluster/images",
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "REGISTRY_AUTH_FILE": str(login),
        "REGISTRY_USER": "ada",
        "REGISTRY_PASSWORD": 'pass"word $x',
        "CI_REGISTRY_USER": "ada",
        "CI_REGISTRY_PASSWORD": 'pass"word $x',
    }
    for script in scripts(service):
        subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=environment, check=True)
        assert login.stat().st_mode & 0o777 == 0o600
    log = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    repository = environment["CELLBLOCK_REPOSITORY"]
    commands = [argv for argv, _ in log]
    build = ["build", "--variant", "debian13", "--cache", repository]
    push = ["push", repository, "--variant", "debian13"]
    each = [build, [*push, "--per-arch"]] * (2 if service == "gitlab" else 1)
    index = [*push, "--index", "--arch", "amd64,arm64", "--digests", "digests-debian13.json"]
    assert commands == [*each, index]
    for _, auth in log:
        encoded = auth["auths"]["registry.example:5000"]["auth"]
        assert base64.b64decode(encoded).decode() == 'ada:pass"word $x'


@pytest.mark.parametrize("service", SCHEMAS)
def test_a_secret_that_is_not_set_is_named(tmp_path: Path, service: str) -> None:
    environment = {"PATH": os.environ["PATH"], "CELLBLOCK_REPOSITORY": "r.example/x", "REGISTRY_USER": "ada"}
    environment |= {"CI_REGISTRY_USER": "ada", "RUNNER_TEMP": str(tmp_path), "CI_REGISTRY_PASSWORD": ""}
    environment["REGISTRY_AUTH_FILE"] = str(tmp_path / "auth.json")
    command = ["bash", "-e", "-c", scripts(service)[0]]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "REGISTRY_PASSWORD: the secret that holds the password is not set" in done.stderr
    assert not (tmp_path / "auth.json").exists()


def test_the_commands_are_ones_that_build_py_has() -> None:
    from typer.main import get_command

    from cellblock.cli.app import app

    known = get_command(app).commands  # type: ignore[attr-defined]
    options = {name: {flag for p in command.params for flag in p.opts} for name, command in known.items()}
    for job in json.loads(written("--locked", "--variant", "debian13"))["jobs"]:
        for line in job["commands"]:
            target, *words = line.split("build.py ")[1].split()
            assert {word for word in words if word.startswith("--")} <= options[target], line


@pytest.mark.parametrize("service", SCHEMAS)
def test_the_documentation_shows_what_is_written(service: str) -> None:
    text = (PROJECT / "docs" / "ci.md").read_text()
    shown = re.search(
        rf"^    python3 build\.py (matrix --ci {service} --variant[^\n]*)\n\nwrites:\n\n```yaml\n(.*?)```",
        text,
        re.MULTILINE | re.DOTALL,
    )
    assert shown, f"docs/ci.md shows an example for {service}"
    assert shown[2] == written(*shown[1].split()[1:]), "put what that command prints into docs/ci.md"


def test_a_file_that_is_out_of_date_is_told_with_the_line_and_the_command(tmp_path: Path) -> None:
    path = tmp_path / "new" / "images.yml"
    options = ("--ci", "github", "--variant", "debian13")
    assert written(*options, "--output", str(path)) == ""
    assert written(*options, "--check", str(path)) == ""
    path.write_text(path.read_text().replace("timeout-minutes: 90", "timeout-minutes: 900", 1))
    done = matrix(*options, f"--check={path}")
    assert done.returncode == 1
    assert re.search(r"images\.yml:\d+: is not what would be written", done.stderr)
    assert re.search(r"found: +timeout-minutes: 900", done.stderr)
    assert f"matrix --ci github --variant debian13 --output {path}" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ci", "githbu"), "there is no 'githbu'; did you mean 'github'?"),
        (("--variant", "debian31"), "there is no variant 'debian31'"),
        (("--arch", "riscv64"), "there is no architecture 'riscv64'"),
        (("wroker",), "there is no image 'wroker'"),
        (("--repository", "https://registry.example/x"), "--repository: cannot be"),
        (("--repository", 'registry.example/x" && rm -rf /'), "--repository: cannot be"),
        (("--cache", "registry.example"), "--cache: cannot be"),
        (("--user-secret", "WHO"), "are given together"),
        (("--user-secret", "WHO", "--password-secret", "hunter2!"), "--password-secret: cannot be"),
        (("--runner", "x86=big"), "does not say which runners"),
        (("--runner", "amd64="), "does not say which runners"),
        (("--timeout", "0"), "--timeout: 0 minutes"),
        (("--branch", "a b"), "--branch: cannot be"),
        (("--checkout", "actions/checkout@v4"), "--checkout: cannot be"),
        (("--output", "a", "--check", "b"), "exclude each other"),
    ],
)
def test_wrong_usage_is_one_message_and_status_2(arguments: tuple[str, ...], message: str) -> None:
    done = matrix(*arguments)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert done.stdout == ""


def test_a_refused_password_is_not_repeated() -> None:
    with pytest.raises(UsageError) as raised:
        Settings(user_secret="WHO", password_secret="hunter2!")
    assert "hunter2" not in str(raised.value)


def test_labels_of_a_runner_are_separated_by_commas() -> None:
    assert parse_runners(["amd64=self-hosted,linux", "arm64=x"]) == {
        "amd64": ("self-hosted", "linux"),
        "arm64": ("x",),
    }


def test_jobs_build_and_push_a_sites_images_that_lie_in_this_tree() -> None:
    jobs = json.loads(written("--ci", "json", "--images", str(SITE), "-v", "debian13"))["jobs"]
    build, index = next(job for job in jobs if job["kind"] == "build"), jobs[-1]
    assert {"login-tools", "worker"} <= set(build["images"])
    for command in (*build["commands"], *index["commands"]):
        assert command.startswith("$root python3 build.py ")
        assert command.endswith(" --images docs/examples/site/images")
    assert "submodules" not in written("--ci", "github", "--images", str(SITE), "-v", "debian13")


def test_a_sites_folder_that_no_job_would_have_is_refused(tmp_path: Path) -> None:
    shutil.copytree(SITE, tmp_path / "images")
    done = matrix("--ci", "github", "--images", str(tmp_path / "images"))
    assert done.returncode == 2
    assert (
        f"--images {tmp_path / 'images'}: a job checks out {PROJECT}, and the folder is not in it"
        in done.stderr
    )


def test_a_pipeline_of_a_repository_that_holds_this_one_fetches_it() -> None:
    """tests/docs/test_site_example.py types the command in such a repository."""
    settings = Settings(program="cellblock/build.py", sites=("images",))
    variant = load_variants(PROJECT / "images/variants.yaml")["debian13"]
    planned = plan_jobs([variant], ["base"], [], settings, gitlab.RUNNERS)
    pipeline = yaml.safe_load(gitlab.gitlab_pipeline(planned, "heading"))
    assert pipeline["variables"]["GIT_SUBMODULE_STRATEGY"] == "normal"
    script = pipeline["debian13:amd64"]["script"]
    assert script[0].startswith("$root python3 cellblock/build.py build --variant debian13 ")
    assert [line.endswith(" --images images") for line in script] == [True, True]
