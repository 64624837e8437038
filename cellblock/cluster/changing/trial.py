# SPDX-License-Identifier: Apache-2.0
"""Tries a new configuration on a slurmctld that is thrown away, before anything that runs is touched.

Slurm has no command that checks slurm.conf whole. A slurmctld of the cluster's own image, in another
network and with an empty state, ends with a message at what it does not take: an unknown key, a value out of
range, a plugin that is not there.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import docker
from docker.errors import DockerException

from cellblock.cluster.configuration import config
from cellblock.cluster.configuration.secrets import JWT_KEY
from cellblock.cluster.definition.names import CONTROLLERS
from cellblock.cluster.engine.inside import run_inside
from cellblock.cluster.engine.running import thrown_away
from cellblock.errors import CellblockError

# Seconds until slurmctld runs or has ended; one is usual.
_TIMEOUT_S = 60
_POLL_S = 0.1
# What slurmctld says when it has read its files; 22.05 to 26.05. It loads more plugins before it answers.
_READ = "Running as primary controller"
_ANSWERS = ["scontrol", "ping"]
_FAULT = re.compile(r"\b(?:fatal|error): (.+)")
# slurmdbd is not asked: none is in the trial, and without it slurmctld does not start for the first time.
_ACCOUNTING = re.compile(r"^AccountingStorage\w*=.*\n", re.MULTILINE)
# Said of any configuration by a slurmctld that has no state and no nodes yet.
_ALWAYS = ("state file", "state save file", "PrologFlags=Contain", "may be lost", "cluster_id")
_STATE = "/var/lib/slurm/slurmctld"
# As its role does (images/controller), with a munged whose key nobody else has, and such a key of auth/slurm.
_SCRIPT = f"""
    set -e
    install -d -o munge -g munge -m 0755 /run/munge /etc/munge /var/log/munge /var/lib/munge
    head -c 128 /dev/urandom | install -o munge -g munge -m 0400 /dev/stdin /etc/munge/munge.key
    setpriv --reuid=munge --regid=munge --clear-groups munged --foreground >/dev/null 2>&1 &
    until munge --no-input >/dev/null 2>&1; do sleep 0.05; done
    install -d -o slurm -g slurm {_STATE} /run/slurmctld
    head -c 32 /dev/urandom | install -o slurm -g slurm -m 0400 /dev/stdin /run/slurmctld/{JWT_KEY}
    head -c 48 /dev/urandom | install -o slurm -g slurm -m 0400 /dev/stdin /run/slurmctld/slurm.key
    # To a slurmctld that this is said to, AuthType is auth/slurm, whatever its file says.
    ! grep -qx AuthType=auth/slurm /etc/slurm/slurm.conf || export SLURM_SACK_KEY=/run/slurmctld/slurm.key
    exec setpriv --reuid=slurm --regid=slurm --init-groups slurmctld -D
"""


def try_configuration(
    client: docker.DockerClient,
    cluster: str,
    image: str,
    texts: Mapping[str, str],
    folder: Path,
) -> None:
    """Raise CellblockError with slurmctld's words when it does not take `texts`, the files below config/.

    `image` is the controller's. The files are below `folder` for the time of the trial.
    """
    with tempfile.TemporaryDirectory(prefix="trial-", dir=folder) as place:
        files = dict(texts)
        files["slurm/slurm.conf"] = _ACCOUNTING.sub("", files["slurm/slurm.conf"])
        config.write(Path(place) / "config", files)
        try:
            runs, log = _run(client, f"cellblock-{cluster}-trial", image, Path(place) / "config" / "slurm")
        except DockerException as error:
            raise CellblockError(
                f"cluster {cluster}: the new configuration cannot be tried: {error}", hint="`build.py doctor`"
            ) from error
    if runs:
        return
    faults = [found[1] for found in _FAULT.finditer(log) if not any(word in found[1] for word in _ALWAYS)]
    said = "\n  ".join(faults[-10:] or log.strip().splitlines()[-10:] or ["(nothing)"])
    raise CellblockError(
        f"cluster {cluster}: slurmctld does not take the new configuration, and what runs is left as it is:"
        f"\n  {said}",
        hint="correct the cluster file, above all `slurm.extra` and `partitions[].options`; run this again",
    )


def _run(client: docker.DockerClient, name: str, image: str, files: Path) -> tuple[bool, str]:
    """Whether slurmctld runs, and what it prints until it does or ends."""
    with thrown_away(client, name):
        container = client.containers.create(
            image,
            name=name,
            hostname=CONTROLLERS[0],
            entrypoint=["tini", "--", "sh", "-c", _SCRIPT],
            command=[],
            # Not the cluster's network: it reaches no node. Without any, slurmctld has no address to
            # listen at.
            extra_hosts={CONTROLLERS[0]: "127.0.0.1"},
            volumes={str(files): {"bind": "/etc/slurm", "mode": "ro"}},
            cap_drop=["ALL"],
            cap_add=["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"],
        )
        container.start()
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            container.reload()
            ended = container.status not in ("created", "running")
            log = str(container.logs().decode("utf-8", "replace"))
            runs = not ended and _READ in log and _answers(client, name)
            if runs or ended or time.monotonic() >= deadline:
                return runs, log
            time.sleep(_POLL_S)


def _answers(client: docker.DockerClient, name: str) -> bool:
    try:
        return b" is UP" in run_inside(client, name, _ANSWERS)[1]
    except (DockerException, OSError):  # it has ended meanwhile
        return False
