# SPDX-License-Identifier: Apache-2.0
"""Submits, reads and cancels a job by a client that OpenAPI Generator made; prints the answers as JSON.

usage: rest_client.py URL VERSION, with the folder of openapi_client in PYTHONPATH and the token in SLURM_JWT.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

USER = "cellblock"


def main(url: str, version: str) -> None:
    """Go once through the life of a job."""
    generated: Any = importlib.import_module("openapi_client")
    # v0.0.42 is slurm_v0042_* and V0042*; before 24.05 names were others, and an environment was an object.
    number = version.replace(".", "")
    old = number < "v0040"
    names = ("submit_job", "cancel_job") if old else ("post_job_submit", "delete_job")
    model = getattr(generated, f"{number.upper()}{'JobSubmission' if old else 'JobSubmitReq'}")
    key = {"user": USER, "token": os.environ["SLURM_JWT"]}
    with generated.ApiClient(generated.Configuration(host=url, api_key=key)) as client:
        api = generated.SlurmApi(client)
        submit, cancel, read = (getattr(api, f"slurm_{number}_{name}") for name in (*names, "get_job"))
        job = {
            "name": "by-client",
            "current_working_directory": "/tmp",
            "environment": {"PATH": "/usr/bin:/bin"} if old else ["PATH=/usr/bin:/bin"],
            "standard_output": "/dev/null",
            "standard_error": "/dev/null",
        }
        submitted = submit(model.from_dict({"script": "#!/bin/sh\nsleep 600\n", "job": job}))
        job_id = str(submitted.job_id)
        running = _wait_for(read, job_id, "RUNNING")
        cancel(job_id)
        ended = _wait_for(read, job_id, "CANCELLED")
    seen = {"name": running.name, "user": running.user_name, "nodes": running.nodes, "ended": _states(ended)}
    sys.stdout.write(json.dumps(seen))


def _states(job: Any) -> list[str]:
    return [job.job_state] if isinstance(job.job_state, str) else list(job.job_state)


def _wait_for(read: Any, job_id: str, state: str) -> Any:
    deadline = time.monotonic() + 120
    while True:
        (job,) = read(job_id).jobs
        if state in _states(job):
            return job
        if time.monotonic() >= deadline:
            raise SystemExit(f"job {job_id} is {_states(job)}, not {state}, after 120 s")
        time.sleep(0.3)


if __name__ == "__main__":
    main(*sys.argv[1:])
