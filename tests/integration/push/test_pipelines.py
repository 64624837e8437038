# SPDX-License-Identifier: Apache-2.0
"""What `build.py matrix` writes for a CI service, run word for word as that service's shell does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from cellblock.paths import PROJECT
from tests.integration.conftest import EVERY_SLURM
from tests.integration.push.verifiers import Cosign, Skopeo, make_key
from tests.integration.registry import PASSWORD, USER, RunningRegistry, repository_of, running_registry

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="PIPELINES ARE NOT TESTED: building needs root")

VARIANT = "debian13"
PUSHED = {"accounting", "controller", "database", "jail", "login", "metrics", "rest", "worker"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    """A registry that wants to know who pushes."""
    with running_registry(tmp_path_factory.mktemp("guarded"), password=True) as running:
        yield running


@pytest.fixture
def repository(guarded: RunningRegistry, request: pytest.FixtureRequest) -> Iterator[str]:
    yield f"{guarded.host}/{repository_of(request)}"
    (PROJECT / f"digests-{VARIANT}.json").unlink(missing_ok=True)


def written(service: str, *options: str) -> dict[str, Any]:
    argv = [sys.executable, "build.py", "matrix", "--ci", service, "-v", VARIANT, "--arch", "amd64", *options]
    done = subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(yaml.safe_load(done.stdout))


def run(script: str, environment: Mapping[str, str]) -> None:
    """As both services do: bash, ended by the first line that fails."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "CELLBLOCK_CACHE") if name in os.environ}
    argv = ["bash", "-e", "-o", "pipefail", "-c", script]
    done = subprocess.run(
        argv, cwd=PROJECT, env={**kept, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


def pulled(repository: str, names: set[str], auth_file: Path) -> None:
    """Another client takes each image, by the tag and by the digest that the pipeline names."""
    digests = json.loads((PROJECT / f"digests-{VARIANT}.json").read_text())
    assert set(digests) == names
    for name, image in digests.items():
        assert image["reference"].startswith(f"{repository}/{name}@sha256:")
        for reference in (f"{repository}/{name}:{VARIANT}", image["reference"]):
            argv = ["skopeo", "inspect", "--tls-verify=false", "--authfile", str(auth_file)]
            done = subprocess.run(
                [*argv, f"docker://{reference}"], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["Digest"]


def test_the_workflow_of_github_builds_pushes_signs_and_joins(
    repository: str, guarded: RunningRegistry, cosign: Cosign, skopeo: Skopeo, tmp_path: Path
) -> None:
    options = ("--user-secret", "WHO", "--password-secret", "WORD", "--key-secret", "SIGNS")
    workflow = written("github", *options)
    private, public = make_key(tmp_path, "ci")
    known = {"vars.CELLBLOCK_REPOSITORY": repository, "secrets.WHO": USER, "secrets.WORD": PASSWORD}
    known["secrets.SIGNS"] = private.read_text()

    def value(text: str) -> str:
        return re.sub(r"\$\{\{ *([a-zA-Z_.]+) *\}\}", lambda found: known[found[1]], text)

    for job in workflow["jobs"].values():
        (tmp_path / "runner").mkdir(exist_ok=True)
        shared = {
            **{name: value(text) for name, text in workflow["env"].items()},
            "RUNNER_TEMP": str(tmp_path / "runner"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        }
        for step in job["steps"]:
            if "run" in step:
                own = {name: value(text) for name, text in step.get("env", {}).items()}
                run(step["run"], {**shared, **own})
    run(f"python3 build.py audit -v {VARIANT}", {})
    auth_file = tmp_path / "runner/registry-auth.json"
    pulled(repository, PUSHED, auth_file)
    by_digest = json.loads((tmp_path / "summary").read_text())["worker"]["reference"]
    # Each machine of a cluster takes the image for it out of the index; a person looks at the index.
    for number, reference in enumerate((f"{repository}/worker:{VARIANT}", by_digest)):
        done = skopeo.pull(reference, public, tmp_path / f"pulled{number}", auth_file)
        assert done.returncode == 0, done.stderr
        (tmp_path / ".docker").mkdir(exist_ok=True)
        (tmp_path / ".docker/config.json").write_text(auth_file.read_text())
        done = cosign.run(tmp_path, "verify", public, reference)
        assert done.returncode == 0, done.stderr
    # What is said of an image is said of one architecture's.
    of_amd64 = ("--type", "slsaprovenance1", f"{repository}/worker:{VARIANT}-amd64")
    done = cosign.run(tmp_path, "verify-attestation", public, *of_amd64)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("variant", EVERY_SLURM)
def test_the_audit_finds_nothing_in_an_untouched_build(variant: str) -> None:
    run(f"python3 build.py build -v {variant} && python3 build.py audit -v {variant}", {})


def test_the_pipeline_of_gitlab_builds_pushes_and_joins(
    repository: str, guarded: RunningRegistry, tmp_path: Path
) -> None:
    pipeline = written("gitlab")
    auth_file = tmp_path / "auth.json"
    predefined = {
        "CI_JOB_ID": "1",
        "CI_REGISTRY_IMAGE": repository,
        "CI_REGISTRY_USER": USER,
        "CI_REGISTRY_PASSWORD": PASSWORD,
    }
    variables = dict(predefined)
    for name, text in pipeline["variables"].items():
        variables[name] = re.sub(r"\$([A-Z_]+)", lambda found: predefined[found[1]], text)
    assert variables["REGISTRY_AUTH_FILE"] == "/tmp/cellblock-1.json"
    variables["REGISTRY_AUTH_FILE"] = str(auth_file)
    before = pipeline["default"]["before_script"]
    jobs = [(name, job) for name, job in pipeline.items() if isinstance(job, dict) and "script" in job]
    assert [name for name, _ in jobs] == [f"{VARIANT}:amd64", f"{VARIANT}:index"]
    for _, job in jobs:
        run("\n".join([*before, *job["script"]]), variables)
    pulled(repository, PUSHED, auth_file)
    run("\n".join(pipeline["default"]["after_script"]), variables)
    assert not auth_file.exists()
