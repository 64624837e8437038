# SPDX-License-Identifier: Apache-2.0
"""Writes the jobs of matrix.py as a pipeline of GitLab CI/CD.

Jobs name the jobs that they need, so each starts when those are done, and a failed variant stops no other.
"""

from __future__ import annotations

from typing import Any

from cellblock.ci.matrix import Job, Matrix, digests_file
from cellblock.ci.settings import KEY_VARIABLE, LOGIN, REPOSITORY_VARIABLE
from cellblock.ci.yaml_text import yaml_text

RUNNERS = {"amd64": ("amd64",), "arm64": ("arm64",)}
"""Tags of runners: the service knows none by default, these are the plain ones."""

_AUTH_FILE = "/tmp/cellblock-$CI_JOB_ID.json"


def gitlab_pipeline(matrix: Matrix, heading: str) -> str:
    """The text of a pipeline, as .gitlab-ci.yml or as a child pipeline's artifact."""
    settings = matrix.settings
    user = settings.user_secret or "CI_REGISTRY_USER"
    password = settings.password_secret or "CI_REGISTRY_PASSWORD"
    variables: dict[str, Any] = {"REGISTRY_AUTH_FILE": _AUTH_FILE, "GIT_DEPTH": "1"}
    if settings.with_submodules:
        variables["GIT_SUBMODULE_STRATEGY"] = "normal"
    # Set by the person in the project's settings, it wins over what stands here.
    variables[REPOSITORY_VARIABLE] = settings.repository or "$CI_REGISTRY_IMAGE"
    names = (f'REGISTRY_USER="${user}" REGISTRY_PASSWORD="${password}"',)
    key = [f'export {KEY_VARIABLE}="${settings.key_secret}"'] if settings.key_secret else []
    pipeline: dict[str, Any] = {
        "stages": ["build", "index"],
        # A child pipeline has its parent's rules; on its own it runs for one branch and by hand.
        "workflow": {
            "rules": [
                {"if": '$CI_PIPELINE_SOURCE == "parent_pipeline"'},
                {"if": '$CI_PIPELINE_SOURCE == "web"'},
                {"if": f'$CI_COMMIT_BRANCH == "{settings.branch}"'},
            ]
        },
        "variables": variables,
        "default": {
            # An answer of the machine that is no fault of the build.
            "retry": {"max": 1, "when": ["runner_system_failure", "stuck_or_timeout_failure"]},
            "timeout": f"{settings.timeout_minutes} minutes",
            # A push broken off would be repeated; nothing is won.
            "interruptible": False,
            "before_script": ["\n".join([*names, *LOGIN]) + "\n", *key, settings.as_root],
            "after_script": ['rm -f "$REGISTRY_AUTH_FILE"'],
        },
    }
    if settings.keyless:
        pipeline["default"]["id_tokens"] = {"SIGSTORE_ID_TOKEN": {"aud": "sigstore"}}
    if settings.container:
        pipeline["default"] = {"image": settings.container, **pipeline["default"]}
    for job in matrix.jobs:
        pipeline[_name(job)] = {
            "stage": job.kind,
            "tags": list(job.runner),
            "needs": [_name(other) for other in matrix.jobs if other.id in job.needs],
            # One at a time: a later pipeline may not move tags before an earlier one.
            "resource_group": f"$CI_COMMIT_REF_SLUG-{job.id}",
            "script": list(job.commands),
        }
        if job.kind == "index":
            pipeline[_name(job)]["artifacts"] = {"paths": [digests_file(job.variant)]}
    return yaml_text(pipeline, heading)


def _name(job: Job) -> str:
    """`debian13:amd64`: the service groups jobs by what stands before the colon."""
    return f"{job.variant}:{job.architecture if job.kind == 'build' else 'index'}"
