# SPDX-License-Identifier: Apache-2.0
"""Runs jobs for integration tests: from the login node, as a user in the jail, or as root outside it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.integration.local_cluster import Done, LocalCluster

ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"})


def srun(cluster: LocalCluster, user: str, *arguments: str, tty: bool = False) -> Done:
    """Run a step."""
    return cluster.client("srun", *arguments, user=user, tty=tty)


def sbatch(cluster: LocalCluster, user: str, script: str, *arguments: str) -> str:
    """Submit `script` and wait for its end; returns the job's id."""
    return ended(cluster, submit(cluster, user, script, *arguments))


def ended(cluster: LocalCluster, job: str) -> str:
    """Wait for the end of a job, or of all elements of an array; returns its id.

    `sbatch --wait` looks after 2, 6 and 12 seconds, and most jobs here take one.
    """

    def over() -> bool:
        text = cluster.on("controller", "scontrol", "show", "job", job, "--oneliner").ok()
        return set(re.findall(r"\bJobState=(\S+)", text)) <= ENDED

    cluster.wait_until(f"job {job} ends", over)
    return job


def submit(cluster: LocalCluster, user: str, script: str, *arguments: str) -> str:
    """Submit `script`; returns the job's id at once."""
    text = script if script.startswith("#!") else f"#!/bin/bash\n{script}"
    done = cluster.client("sbatch", "--parsable", *arguments, user=user, stdin=f"{text}\n")
    assert done.out.strip(), done
    return done.out.strip()


def accounted_state(cluster: LocalCluster, job: str) -> str:
    """The state of a job in the accounting; "" while there is none, or nobody answers."""
    return cluster.on("controller", "sacct", "-nXP", "-j", job, "--format=state").out.strip()


def home(cluster: LocalCluster, user: str) -> Path:
    """The user's home on this machine."""
    return cluster.root / "home" / user


def fresh_path(cluster: LocalCluster, user: str, name: str) -> Path:
    """A path in the user's home where nothing lies, whatever other tests or an earlier try left there."""
    path = home(cluster, user) / name
    path.unlink(missing_ok=True)
    return path


def output(cluster: LocalCluster, user: str, name: str) -> str:
    """What a job wrote to a file in the user's home; empty while there is none."""
    path = home(cluster, user) / name
    return path.read_text() if path.exists() else ""


def script_file(cluster: LocalCluster, user: str, name: str, text: str) -> str:
    """A program in the user's home; returns its path in the jail."""
    path = home(cluster, user) / name
    path.write_text(text)
    path.chmod(0o755)
    return f"/home/{user}/{name}"
