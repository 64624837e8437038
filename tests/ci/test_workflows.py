# SPDX-License-Identifier: Apache-2.0
"""The project's own workflows: valid, safe, and each test that `--thorough` prolongs is in a nightly job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cellblock.ci.settings import CHECKOUT
from cellblock.cli.testing import THOROUGH
from cellblock.paths import PROJECT

WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))
# Whose files the variable reaches by tests/conftest.py, or by a helper that they import.
_BY_HELPERS = {"CELLBLOCK_EXAMPLES", "CELLBLOCK_FUZZ_SEED", "CELLBLOCK_OTHER_RELEASES", "PYTEST_TIMEOUT"}
# A mark of tests that run by day with one release, and at night with all (tests/integration/conftest.py).
_AT_NIGHT = "pytest.mark.others_at_night"


def test_they_are_valid_by_the_services_schema() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    for schema in ("vendor.github-workflows", "custom.github-workflows-require-timeout"):
        done = subprocess.run(
            [*check, schema, *map(str, WORKFLOWS)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


def test_a_linter_of_workflows_finds_nothing_unsafe() -> None:
    linter = str(Path(sys.executable).with_name("zizmor"))
    command = [linter, "--offline", "--no-progress", "--no-config", *map(str, WORKFLOWS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_actions_are_those_that_matrix_writes() -> None:
    for path in WORKFLOWS:
        jobs = yaml.safe_load(path.read_text())["jobs"].values()
        assert {step["uses"] for job in jobs for step in job["steps"] if "uses" in step} == {CHECKOUT}, path


def nightly() -> list[str]:
    """The paths that the nightly jobs name."""
    data = yaml.safe_load((PROJECT / ".github" / "workflows" / "nightly.yml").read_text())
    return [
        path for tests in data["jobs"]["thorough"]["strategy"]["matrix"]["tests"] for path in tests.split()
    ]


def _steps(job: str) -> list[dict[str, Any]]:
    """The steps of a nightly job."""
    data = yaml.safe_load((PROJECT / ".github" / "workflows" / "nightly.yml").read_text())
    return list(data["jobs"][job]["steps"])


def test_nightly_jobs_name_what_there_is_once() -> None:
    paths = nightly()
    assert len(paths) == len(set(paths))
    assert [path for path in paths if not (PROJECT / path).exists()] == []


@pytest.mark.parametrize("variable", sorted(set(THOROUGH) - _BY_HELPERS))
def test_what_takes_long_runs_at_night(variable: str) -> None:
    readers = [
        path.relative_to(PROJECT)
        for path in (PROJECT / "tests").rglob("*.py")
        if path != Path(__file__) and f'"{variable}"' in path.read_text()
    ]
    assert readers, f"no test reads {variable}"
    for reader in readers:
        if reader.name.startswith(("test_", "conftest")):
            assert is_in_a_job(reader), f"{reader} is in no nightly job"


def is_in_a_job(file: Path) -> bool:
    """Whether a nightly job names the file of tests, or a folder that it is in."""
    return any(Path(path) in (file, *file.parents) for path in nightly())


def test_what_runs_by_day_with_one_release_runs_at_night_with_all() -> None:
    files = [path for path in (PROJECT / "tests").rglob("*.py") if path != Path(__file__)]
    marked = [path.relative_to(PROJECT) for path in files if _AT_NIGHT in path.read_text()]
    assert marked
    assert [file for file in marked if not is_in_a_job(file)] == []
    # What at night takes each case of the escape suite, and each release, is set by `--thorough`.
    assert is_in_a_job(Path("tests/integration/escape/test_escape.py"))


@pytest.mark.parametrize("named", ["", "/srv/kubernetes"])
@pytest.mark.parametrize("tests", ["tests/kubernetes", "tests/jail"])
def test_a_kubernetes_is_made_where_the_runner_has_none(tests: str, named: str, tmp_path: Path) -> None:
    """or all that needs one would be left out, and the night's run pass"""
    (step,) = [one for one in _steps("thorough") if "build.py test" in one.get("run", "")]
    programs = {
        "bin/apt-get": 'echo "apt-get $1" >> said',
        "tests/kubernetes/from_source/make-kubernetes": 'echo "make $1" >> said',
        "bin/python3": 'echo "$* with ${CELLBLOCK_KUBERNETES-}" >> said',
    }
    for name, line in programs.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
    environment = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "HOME": "/home/runner", "TESTS": tests}
    environment |= {"CELLBLOCK_KUBERNETES": named} if named else {}
    argv = ["bash", "-e", "-o", "pipefail", "-c", step["run"]]
    subprocess.run(argv, cwd=tmp_path, env=environment, check=True)
    *before, last = (tmp_path / "said").read_text().splitlines()
    made = "/home/runner/cellblock-kubernetes"
    if tests == "tests/kubernetes" and not named:
        assert before[-1] == f"make {made}"
    else:
        made = named
        assert before == []
    assert last == f"build.py test --thorough {tests} with {made}"
