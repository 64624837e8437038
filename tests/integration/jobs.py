"""How the integration tests run jobs: as a user of the jail, from the login node."""

from __future__ import annotations

from pathlib import Path

from tests.integration.conftest import Done, LocalCluster


def srun(cluster: LocalCluster, user: str, *arguments: str, tty: bool = False) -> Done:
    """Run a step."""
    return cluster.jail("srun", *arguments, user=user, tty=tty)


def sbatch(cluster: LocalCluster, user: str, script: str, *arguments: str) -> str:
    """Submit `script` and wait for its end; returns the job's id."""
    return submit(cluster, user, script, "--wait", *arguments)


def submit(cluster: LocalCluster, user: str, script: str, *arguments: str) -> str:
    """Submit `script`; returns the job's id at once."""
    text = script if script.startswith("#!") else f"#!/bin/bash\n{script}"
    done = cluster.jail("sbatch", "--parsable", *arguments, user=user, stdin=f"{text}\n")
    assert done.out.strip(), done
    return done.out.strip()


def home(cluster: LocalCluster, user: str) -> Path:
    """The user's home on this machine."""
    return cluster.root / "home" / user


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
