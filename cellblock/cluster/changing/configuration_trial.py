# SPDX-License-Identifier: Apache-2.0
"""Tries a new configuration on a temporary slurmctld, before anything of the running cluster is touched.

Slurm has no command that checks slurm.conf whole. The temporary slurmctld runs in the cluster's own image,
in another network and with an empty state. It ends with a message at anything that it does not accept: an
unknown key, a value out of range, a plugin that does not exist.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import docker
from docker.errors import DockerException

from cellblock.cluster.configuration import config_files
from cellblock.cluster.configuration.secrets import JWT_KEY
from cellblock.cluster.definition.names import CONTROLLERS, name_option
from cellblock.cluster.engine.container_exec import run_inside
from cellblock.cluster.engine.containers import thrown_away
from cellblock.cluster.facts import state
from cellblock.errors import CellblockError

PLUGSTACK = "slurm/plugstack.conf"
"""Among the files below config/: what Slurm's daemons load of ours."""
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
_KEYS = f"""
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
"""
_SCRIPT = f"""{_KEYS}
    exec setpriv --reuid=slurm --regid=slurm --init-groups slurmctld -D
"""
# slurmd without what takes cgroups of its own: it loads the SPANK plugins before it asks for slurmctld.
_NODE_SCRIPT = f"""{_KEYS}
    install -d /tmp/slurm /var/spool/slurmd /var/log/slurm
    cp /etc/slurm/* /tmp/slurm/
    sed -i -E -e 's|^ProctrackType=.*|ProctrackType=proctrack/linuxproc|' \\
        -e '/^(TaskPlugin|JobAcctGatherType|PrologFlags)=/d' /tmp/slurm/slurm.conf
    # 22.05 knows no plugin of that name; its own takes nothing when nothing asks it to.
    case $(slurmd -V) in *' 22.'*) plugin=cgroup/v1 ;; *) plugin=disabled ;; esac
    echo "CgroupPlugin=$plugin" > /tmp/slurm/cgroup.conf
    # It names devices, which slurmd waits for.
    : > /tmp/slurm/gres.conf
    grep -q "^NodeName=$1" /tmp/slurm/slurm.conf || itself=-Z
    exec slurmd -D $itself -N "$1" -f /tmp/slurm/slurm.conf
"""
_LOADED = re.compile(r"slurmd version \S+ started")
_SPANK_FAULT = re.compile(r"\berror: ((?:spank_jail|pyxis|spank): .+)")


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
        config_files.write(Path(place) / "config", files)
        name, script = f"cellblock-{cluster}-trial", ["tini", "--", "sh", "-c", _SCRIPT]

        def is_done(log: str) -> bool:
            return _READ in log and _answers(client, name)

        try:
            runs, log = _run(client, name, image, Path(place) / "config" / "slurm", script, is_done)
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


def try_on_nodes(
    client: docker.DockerClient,
    cluster: str,
    images: Mapping[str, str],
    texts: Mapping[str, str],
    folder: Path,
) -> None:
    """Raise CellblockError with the plugins' words when a slurmd does not take the plugstack.conf of `texts`.

    A slurmd that runs ends when it is given one with an argument that its plugins do not know. `images` maps
    images to a node that has it. Whatever else ends the slurmd of the trial is no verdict: it has no cgroups.
    """
    for image, node in images.items():
        with tempfile.TemporaryDirectory(prefix="trial-", dir=folder) as place:
            config_files.write(Path(place) / "config", texts)
            name, files = f"cellblock-{cluster}-trial-node", Path(place) / "config" / "slurm"
            script = ["tini", "--", "sh", "-c", _NODE_SCRIPT, "sh", node]
            try:
                _, log = _run(client, name, image, files, script, lambda log: bool(_LOADED.search(log)), node)
            except DockerException as error:
                raise CellblockError(
                    f"cluster {cluster}: the new configuration cannot be tried on {node}: {error}",
                    hint="`build.py doctor`",
                ) from error
        faults = list(dict.fromkeys(found[1] for found in _SPANK_FAULT.finditer(log)))
        if faults and not _LOADED.search(log):
            said = "\n  ".join(faults)
            raise CellblockError(
                f"cluster {cluster}: slurmd of {node} would end by the new plugstack.conf, and what runs is "
                f"left as it is:\n  {said}",
                hint=f"the plugins of its image, {image}, are of another Cellblock: `build.py "
                f"down{name_option(cluster)}`, then {state.same_up(cluster)} starts all nodes anew; "
                "or correct deploy/slurm/plugstack.conf.j2",
            )


def _run(
    client: docker.DockerClient,
    name: str,
    image: str,
    files: Path,
    script: list[str],
    is_done: Callable[[str], bool],
    hostname: str = CONTROLLERS[0],
) -> tuple[bool, str]:
    """Whether the daemon runs until its log `is_done`, and what it prints until then or until it ends."""
    with thrown_away(client, name):
        container = client.containers.create(
            image,
            name=name,
            hostname=hostname,
            entrypoint=script,
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
            runs = not ended and is_done(log)
            if runs or ended or time.monotonic() >= deadline:
                return runs, log
            time.sleep(_POLL_S)


def _answers(client: docker.DockerClient, name: str) -> bool:
    try:
        return b" is UP" in run_inside(client, name, _ANSWERS)[1]
    except (DockerException, OSError):  # it has ended meanwhile
        return False
