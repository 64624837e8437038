# SPDX-License-Identifier: Apache-2.0
"""Writes the jobs of matrix.py as a workflow of GitHub Actions.

Each variant is a job with a strategy over its architectures and a job that joins them, so that a variant
whose build fails does not keep others from being pushed.
"""

from __future__ import annotations

import re
from typing import Any

from cellblock.ci.matrix import Matrix, digests_file
from cellblock.ci.settings import KEY_VARIABLE, LOGIN, REPOSITORY_VARIABLE
from cellblock.ci.yaml_text import yaml_text
from cellblock.errors import UsageError

RUNNERS = {"amd64": ("ubuntu-24.04",), "arm64": ("ubuntu-24.04-arm",)}
"""Labels of the runners that the service itself offers."""

# The token that each run has by itself. It may write packages only where a job says so.
_TOKEN = "GITHUB_TOKEN"


def github_workflow(matrix: Matrix, heading: str) -> str:
    """The text of a workflow file. Raises UsageError when two variants would share a job's id."""
    settings = matrix.settings
    jobs: dict[str, Any] = {}
    for variant in matrix.variants:
        name, index_name = _job_id(variant), f"{_job_id(variant)}-index"
        if name in jobs or index_name in jobs:
            raise UsageError(
                f"variant '{variant}' and an earlier one would both be job '{name}'",
                hint="choose other variants with --variant",
            )
        builds, index = matrix.builds(variant), matrix.index(variant)
        include = [{"arch": job.architecture, "runner": _labels(job.runner)} for job in builds]
        jobs[name] = {
            "name": f"{variant} ${{{{ matrix.arch }}}}",
            "runs-on": "${{ matrix.runner }}",
            "strategy": {"fail-fast": False, "matrix": {"include": include}},
            **_job(matrix, builds[0].commands),
        }
        jobs[index_name] = {
            "name": f"{variant} index",
            "needs": [name],
            "runs-on": _labels(index.runner),
            # Shown with the run: what to deploy, by digest.
            **_job(matrix, (*index.commands, f'cat {digests_file(variant)} >> "$GITHUB_STEP_SUMMARY"')),
        }
    repository = settings.repository or f"${{{{ vars.{REPOSITORY_VARIABLE} }}}}"
    workflow = {
        "name": "images",
        "on": {"push": {"branches": [settings.branch]}, "workflow_dispatch": {}},
        # Jobs ask for what they need beyond that.
        "permissions": {},
        # A later push waits: it may not move tags before an earlier one, nor break its push off.
        "concurrency": {"group": "images-${{ github.ref }}", "cancel-in-progress": False},
        "env": {REPOSITORY_VARIABLE: repository},
        "jobs": jobs,
    }
    return yaml_text(workflow, heading)


def _job(matrix: Matrix, commands: tuple[str, ...]) -> dict[str, Any]:
    settings = matrix.settings
    permissions = {"contents": "read"}
    if settings.password_secret in (None, _TOKEN):
        permissions["packages"] = "write"
    if settings.keyless:
        permissions["id-token"] = "write"
    user = f"secrets.{settings.user_secret}" if settings.user_secret else "github.actor"
    password = f"secrets.{settings.password_secret or _TOKEN}"
    job: dict[str, Any] = {"permissions": permissions, "timeout-minutes": settings.timeout_minutes}
    if settings.container:
        job["container"] = {"image": settings.container, "options": "--privileged"}
    # RUNNER_TEMP is emptied after the job.
    auth_file = "REGISTRY_AUTH_FILE=$RUNNER_TEMP/registry-auth.json"
    submodules = {"submodules": True} if settings.with_submodules else {}
    job["steps"] = [
        {"uses": settings.checkout, "with": {"persist-credentials": False, **submodules}},
        {
            "name": "registry",
            "env": {"REGISTRY_USER": f"${{{{ {user} }}}}", "REGISTRY_PASSWORD": f"${{{{ {password} }}}}"},
            "run": "\n".join(["set -eu", f"export {auth_file}", *LOGIN]) + "\n",
        },
        {
            "name": "images",
            **(
                {"env": {KEY_VARIABLE: f"${{{{ secrets.{settings.key_secret} }}}}"}}
                if settings.key_secret
                else {}
            ),
            "run": "\n".join(["set -eu", f"export {auth_file}", settings.as_root, *commands]) + "\n",
        },
    ]
    return job


def _labels(labels: tuple[str, ...]) -> str | list[str]:
    return labels[0] if len(labels) == 1 else list(labels)


def _job_id(variant: str) -> str:
    """Letters, digits, `-` and `_` only, not beginning with a digit."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", variant)
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"
