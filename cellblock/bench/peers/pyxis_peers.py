# SPDX-License-Identifier: Apache-2.0
"""Measures steps of Slurm in containers: by pyxis, and by srun of podman, Charliecloud and Apptainer.

They run on a plain Slurm of Debian sid without a jail: a controller and a node in one root filesystem, with
Cellblock's packages for that release. An ordinary user imports the image to one file for each (podman: to its
storage), then runs steps of one task and of 16, in turns with steps without a container.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from cellblock.bench.harness.debian_root import debian_root, entered
from cellblock.bench.harness.registry import registry
from cellblock.bench.harness.scratch import scratch
from cellblock.build import BuildRequest
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.release.packages import PackagesRequest, make_packages

VARIANT, SUITE = "debian14", "sid"
"""Packages for the release of Slurm that the suite has."""
TASKS = 16
_UID = 1500
_WORK = "/var/tmp/bench"
_PACKAGES = (
    *("slurmctld", "slurmd", "slurm-client", "munge", "mount", "passwd", "uidmap", "podman", "runc"),
    *("charliecloud", "apptainer", "squashfs-tools", "squashfuse", "fuse3", "fuse-overlayfs"),
    *("libyaml-0-2", "libcurl4t64", "libjansson4", "libisal2", "liblz4-1", "python3"),
)
_PORTS = (16817, 16818)
"""Beside those of another Slurm on this machine."""
_CONFIGURATION = """\
ClusterName=peers
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation=/var/lib/slurm/ctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName=peers NodeHostname={host} NodeAddr=127.0.0.1 CPUs=32 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES
"""
_DAEMONS = """
mkdir -p /run/munge /var/lib/slurm/ctld /var/lib/slurm/slurmd
[ -s /etc/munge/munge.key ] || (umask 077; head -c 1024 /dev/urandom > /etc/munge/munge.key)
chown munge: /etc/munge/munge.key /run/munge /var/lib/munge /var/log/munge
setpriv --reuid munge --regid munge --clear-groups munged --force --foreground &
rm -rf /var/lib/slurm/ctld/*
sleep 1
slurmctld -D &
slurmd -D -N peers &
wait
"""
_USER = f"exec setpriv --reuid={_UID} --regid={_UID} --clear-groups"
_VARIABLES = {
    "USER": "bench",
    "HOME": _WORK,
    "XDG_RUNTIME_DIR": f"{_WORK}/run",
    "CH_IMAGE_STORAGE": f"{_WORK}/storage",
    # ch-image's HTTP library takes authorities of the environment for more than its option.
    "REQUESTS_CA_BUNDLE": "",
    "CURL_CA_BUNDLE": "",
    "ENROOT_ALLOW_HTTP": "yes",
    "ENROOT_RUNTIME_PATH": f"{_WORK}/run/enroot",
    "ENROOT_CACHE_PATH": f"{_WORK}/cache",
}
_PODMAN = "podman --cgroup-manager=cgroupfs --runtime=runc"
"""crun refuses a machine with cgroups of both versions."""
_IMPORTS = {
    "pyxis": "enroot import --output {work}/image.sqsh docker://{host}#bench/{image}:1",
    "podman": _PODMAN + " pull --quiet --tls-verify=false {host}/bench/{image}:1",
    "charliecloud": "ch-image pull --tls-no-verify {secured}/bench/{image}:1 image"
    " && ch-convert image {work}/image.sqfs",
    "apptainer": "apptainer --silent pull --no-https {work}/image.sif docker://{host}/bench/{image}:1",
}
_STEPS = {
    "bare": ("", "true"),
    "pyxis": (f"--container-image={_WORK}/image.sqsh", "true"),
    "podman": ("", _PODMAN + " run --rm --network=host {host}/bench/{image}:1 /usr/bin/true"),
    "charliecloud": ("", f"ch-run {_WORK}/image.sqfs -- /usr/bin/true"),
    "apptainer": ("", f"apptainer --silent exec {_WORK}/image.sif /usr/bin/true"),
}
"""Options of srun, and the program."""


def step_peers(rounds: int, events: Events, image: str = "base") -> dict[str, float | None]:
    """Milliseconds that a container adds to a step of one task and of 16, by `NAME_over_bare_ms` and so on.

    Needs 4 GB of disk, mmdebstrap and docker-registry. Raises CellblockError.
    """
    root = debian_root("slurm-peers", SUITE, _PACKAGES, [f"bench:x:{_UID}:{_UID}::{_WORK}:/bin/sh"], events)
    with (
        scratch() as folder,
        registry(folder, [image]) as host,
        registry(folder, (), tls=True) as secured,
        entered(root) as enter,
    ):
        _prepare(root, folder, enter, events)
        words = {"host": host, "secured": secured, "image": image, "work": _WORK}
        for name, line in _IMPORTS.items():
            with events.step(name, "import"):
                _as_user(enter, line.format(**words))
        with _slurm(enter), events.step("steps", f"{rounds} rounds"):
            return _measure(enter, rounds, words)


def _prepare(root: Path, folder: Path, enter: Sequence[str], events: Events) -> None:
    """Our packages, the configuration, and the user's folder, all anew."""
    made = folder / "packages"
    make_packages(PackagesRequest(BuildRequest(variant=VARIANT), made), events)
    debs = [each for name in ("enroot", "pyxis") for each in made.glob(f"debian/cellblock-{name}*.deb")]
    for each in debs:
        shutil.copy(each, root / "tmp")
    _run([*enter, "dpkg", "--install", *(f"/tmp/{each.name}" for each in debs)])
    work = root / _WORK.lstrip("/")
    shutil.rmtree(work, ignore_errors=True)
    (work / "run").mkdir(parents=True)
    for place in (work, work / "run"):
        os.chown(place, _UID, _UID)
    settings = root / "etc/slurm"
    settings.mkdir(exist_ok=True)
    text = _CONFIGURATION.format(host=socket.gethostname(), ports=_PORTS)
    (settings / "slurm.conf").write_text(text)
    (settings / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    (settings / "plugstack.conf").write_text("required pyxis.so\n")
    for name in ("subuid", "subgid"):
        (root / "etc" / name).write_text("bench:100000:65536\n")
    group = root / "etc/group"
    if "\nbench:" not in group.read_text():
        with group.open("a") as file:
            file.write(f"bench:x:{_UID}:\n")


@contextmanager
def _slurm(enter: Sequence[str]) -> Iterator[None]:
    """The daemons, until the node takes jobs and while the context lasts."""
    command = [*enter, "sh", "-ec", _DAEMONS]
    daemons = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 60
        while (
            "idle"
            not in subprocess.run(
                [*enter, "sinfo", "-h", "-o", "%t"], capture_output=True, text=True, check=False
            ).stdout.split()
        ):
            if time.monotonic() > deadline:
                raise CellblockError(
                    "slurmd of the peers' root takes no jobs after 60 s",
                    hint="its logs are in bench/slurm-peers-sid/var/log below CELLBLOCK_CACHE",
                )
            time.sleep(0.2)
        yield
    finally:
        os.killpg(daemons.pid, signal.SIGTERM)
        daemons.wait()


def _measure(enter: Sequence[str], rounds: int, words: Mapping[str, str]) -> dict[str, float | None]:
    lines = []
    for name, (options, program) in _STEPS.items():
        program = program.format(**words)
        lines += [
            f"{name} srun -n1 {options} {program}",
            f"{name}{TASKS} srun -n{TASKS} --overcommit {options} {program}",
        ]
    script = files("cellblock.bench.peers").joinpath("pyxis_peers.sh").read_text()
    said = _as_user(
        enter,
        f'salloc --quiet --ntasks={TASKS} bash -c "$SCRIPT" peers {rounds}',
        {"SCRIPT": script},
        "\n".join(lines) + "\n",
    )
    times: dict[str, list[float]] = defaultdict(list)
    for kind, number in (line.split() for line in said.splitlines()):
        times[kind].append(int(number) / 1000)
    return peer_keys(times)


def peer_keys(times: Mapping[str, Sequence[float]]) -> dict[str, float | None]:
    """The keys of `--json` from milliseconds of each kind: differences of medians."""
    median = {kind: statistics.median(values) for kind, values in times.items()}
    found: dict[str, float] = {"peers_bare_ms": median["bare"]}
    for name in _STEPS:
        if name != "bare":
            found[f"{name}_over_bare_ms"] = median[name] - median["bare"]
            found[f"{name}_tasks{TASKS}_over_bare_ms"] = median[f"{name}{TASKS}"] - median[f"bare{TASKS}"]
    return {key: round(value, 1) for key, value in found.items()}


def _as_user(
    enter: Sequence[str], line: str, variables: Mapping[str, str] | None = None, given: str = ""
) -> str:
    return _run([*enter, "sh", "-ec", f'{_USER} sh -ec "$LINE"'], {"LINE": line, **(variables or {})}, given)


def _run(command: Sequence[str], variables: Mapping[str, str] | None = None, given: str = "") -> str:
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **_VARIABLES, **(variables or {})}
    done = subprocess.run(command, env=environment, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        what = (variables or {}).get("LINE", " ".join(command))
        raise CellblockError(
            f"`{what}` ended with status {done.returncode}: {(done.stderr or done.stdout).strip()[-1500:]}",
            hint="correct what it says, then run the benchmark again",
        )
    return done.stdout
