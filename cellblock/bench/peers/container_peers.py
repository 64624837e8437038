# SPDX-License-Identifier: Apache-2.0
"""Measures starts, imports and memory of containers of podman, Charliecloud and Apptainer.

Each is used as its documentation says: Apptainer as an ordinary user, the others as root. Charliecloud of
Debian 13 and Apptainer of Debian sid run in root filesystems of their own, made by mmdebstrap and kept below
CELLBLOCK_CACHE; podman is this machine's. The registry is on loopback, and its files are in the page cache
for all. The time of entering such a root is measured and subtracted. The runs of all three take turns.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from cellblock.bench.harness.debian_root import debian_root, entered
from cellblock.bench.harness.registry import registry
from cellblock.bench.harness.scratch import scratch, storage
from cellblock.bench.inputs.import_images import SHAPES
from cellblock.cluster.facts.host import container_limits
from cellblock.errors import CellblockError
from cellblock.events import Events, Progress

TASKS = 16
RUNS = 20
PODMAN = ("podman", "--cgroup-manager=cgroupfs")
"""Without systemd there is nobody to make scopes."""
RUN_OPTIONS = (
    *("--rm", "--network=host"),
    # podman's defaults are above what a process without CAP_SYS_RESOURCE may set.
    *(f"--ulimit={limit.name}={limit.value}:{limit.value}" for limit in container_limits()),
)
_TRUE, _SLEEP = ("/usr/bin/true",), ("/usr/bin/sleep", "30")
_WORK, _HOME = "/var/tmp/bench", {"USER": "root", "HOME": "/root"}
"""In a root of a peer's own."""
_UID = 1500
_ACCOUNT = f"bench:x:{_UID}:{_UID}::{_WORK}:/bin/sh"
_AS_USER = f"setpriv --reuid={_UID} --regid={_UID} --clear-groups"
"""root's Apptainer asks for all capabilities, which root of a container has not."""
_SETTLE_S = 3.0


@dataclass(frozen=True)
class Runtime:
    """A way to run containers. Lines are for a shell, with {host}, {image} and {work}, a folder of its own.

    `pull` makes of an image in the registry what one starts a task from on many nodes: one file where the
    runtime knows such; `unpack` makes a folder of that. `folder` and `file` start a program in them; a
    runtime without one of these has an empty line. `root` is where its programs are.
    """

    name: str
    pull: str
    unpack: str
    folder: str
    file: str
    root: Path = Path("/")
    variables: dict[str, str] = field(default_factory=dict)
    only_tls: bool = False
    """Whether it speaks no plain http."""
    enter: tuple[str, ...] = ()
    """The command that goes into that root."""

    def command(self, line: str, **words: str) -> list[str]:
        """The line as an argument vector, in the runtime's own root."""
        return [*self.enter, "sh", "-ec", line.format(**words)]

    def exec_line(self, line: str, program: Sequence[str]) -> str:
        """The line that starts `program`; the shell itself does not stay."""
        return f"exec {line} {' '.join(program)}"


@dataclass(frozen=True)
class RuntimeCost:
    """Of one runtime: seconds of imports by image, ms of starts, and KiB of memory of a task of 16."""

    imports: dict[str, float]
    folder_ms: float | None
    file_ms: float | None
    tasks_ms: float
    task_kib: float

    def keys(self, name: str) -> dict[str, float | None]:
        """For `build.py bench enroot --peers --json`."""
        return {
            **{f"{name}_import_file_{image}_s": round(value, 2) for image, value in self.imports.items()},
            f"{name}_start_folder_ms": None if self.folder_ms is None else round(self.folder_ms, 1),
            f"{name}_start_file_ms": None if self.file_ms is None else round(self.file_ms, 1),
            f"{name}_tasks16_ms": round(self.tasks_ms, 1),
            f"{name}_task_kib": round(self.task_kib),
        }


def peers_cost(enroot: Path, importer: Path, events: Events, runs: int = RUNS) -> dict[str, RuntimeCost]:
    """Measure ours, `enroot` with its `importer`, and the peers, `runs` starts of each kind.

    Needs 12 GB of /var/tmp, mmdebstrap, docker-registry, skopeo and podman. Raises CellblockError.
    """
    for tool in ("podman", "docker-registry", "skopeo"):
        if not shutil.which(tool):
            raise CellblockError(f"{tool} is not installed", hint=f"apt-get install {tool}")
    roots = {
        name: debian_root(name, suite, packages, [_ACCOUNT], events)
        for name, (suite, packages) in _ROOTS.items()
    }
    names = [shape.name for shape in SHAPES]
    with (
        scratch() as folder,
        registry(folder, names) as host,
        registry(folder, (), tls=True) as secured,
        ExitStack() as stack,
    ):
        runtimes = [stack.enter_context(_inside(each)) for each in _runtimes(folder, roots, enroot, importer)]
        imports = {
            each.name: _imports(each, folder, secured if each.only_tls else host, events) for each in runtimes
        }
        starts = _starts(runtimes, folder, runs, events)
        costs: dict[str, RuntimeCost] = {}
        for each in runtimes:
            with events.step(each.name, f"memory of {TASKS} tasks"):
                memory = _memory(each, folder)
            costs[each.name] = RuntimeCost(imports[each.name], *starts[each.name], memory)
        return costs


_ROOTS = {
    "charliecloud": ("trixie", ["charliecloud", "squashfuse", "fuse3"]),
    # Without squashfuse it unpacks a SIF at each start.
    "apptainer": ("sid", ["apptainer", "squashfuse", "fuse3", "fuse-overlayfs"]),
}
"""Runtime -> suite of Debian that has it, and packages."""


def _runtimes(folder: Path, roots: dict[str, Path], enroot: Path, importer: Path) -> list[Runtime]:
    """Ours first. `folder` is for what they keep; inside a root of their own that is /var/tmp/bench."""
    podman = storage(folder / "podman")
    return [
        Runtime(
            "enroot",
            f"{importer} import --output {{work}}/{{image}}.sqsh docker://{{host}}#bench/{{image}}:1",
            f"{enroot} create -n {{image}} {{work}}/{{image}}.sqsh",
            f"{enroot} start {{image}}",
            f"{enroot} start {{work}}/{{image}}.sqsh",
            variables={
                "ENROOT_SYSCONF_PATH": str(folder / "none"),
                "ENROOT_CACHE_PATH": str(folder / "enroot-cache"),
                "ENROOT_DATA_PATH": str(folder / "enroot-data"),
                "ENROOT_RUNTIME_PATH": str(folder / "enroot-run"),
                "ENROOT_TEMP_PATH": str(folder),
            },
        ),
        Runtime(
            "podman",
            f"{' '.join(PODMAN)} pull --quiet --tls-verify=false {{host}}/bench/{{image}}:1",
            "true",
            f"{' '.join((*PODMAN, 'run', *RUN_OPTIONS))} {{host}}/bench/{{image}}:1",
            "",
            variables=podman,
        ),
        Runtime(
            "charliecloud",
            "ch-image pull --tls-no-verify {host}/bench/{image}:1 {image}"
            " && ch-convert {image} {work}/{image}.sqfs",
            "ch-convert {work}/{image}.sqfs {work}/{image}",
            "ch-run {work}/{image} --",
            "ch-run {work}/{image}.sqfs --",
            roots["charliecloud"],
            # Its HTTP library takes authorities of the environment for more than the option.
            {"REQUESTS_CA_BUNDLE": "", "CURL_CA_BUNDLE": "", **_HOME, "CH_IMAGE_STORAGE": f"{_WORK}/storage"},
            only_tls=True,
        ),
        Runtime(
            "apptainer",
            f"{_AS_USER} apptainer --silent pull --no-https {{work}}/{{image}}.sif docker://{{host}}/bench/{{image}}:1",
            f"{_AS_USER} apptainer --silent build --sandbox {{work}}/{{image}} {{work}}/{{image}}.sif",
            f"{_AS_USER} apptainer --silent exec {{work}}/{{image}}",
            f"{_AS_USER} apptainer --silent exec {{work}}/{{image}}.sif",
            roots["apptainer"],
            {"USER": "bench", "HOME": _WORK},
        ),
    ]


@contextmanager
def _inside(runtime: Runtime) -> Iterator[Runtime]:
    """The runtime with the command that enters its own root, where it has one."""
    if runtime.root == Path("/"):
        yield runtime
        return
    with entered(runtime.root) as enter:
        yield replace(runtime, enter=enter)


def _work(runtime: Runtime, folder: Path) -> str:
    """The runtime's folder, as it sees it."""
    if runtime.root == Path("/"):
        return str(folder / f"{runtime.name}-work")
    return _WORK


def _imports(runtime: Runtime, folder: Path, host: str, events: Events) -> dict[str, float]:
    """Seconds of a cold import of each image; the last one, big, stays, as a folder too."""
    work = _work(runtime, folder)
    outside = runtime.root / work.lstrip("/")
    shutil.rmtree(outside, ignore_errors=True)
    outside.mkdir(parents=True)
    if runtime.variables.get("USER") == "bench":
        os.chown(outside, _UID, _UID)
    found = {}
    for number, shape in enumerate(SHAPES):
        events.emit(Progress(runtime.name, number, len(SHAPES), "imports"))
        words = {"host": host, "image": shape.name, "work": work}
        found[shape.name] = _run(runtime.command(runtime.pull, **words), runtime.variables)
    words = {"host": host, "image": SHAPES[-1].name, "work": work}
    _run(runtime.command(runtime.unpack, **words), runtime.variables)
    (outside / "host").write_text(host)
    return found


def _words(runtime: Runtime, folder: Path) -> dict[str, str]:
    work = _work(runtime, folder)
    host = (runtime.root / work.lstrip("/") / "host").read_text()
    return {"host": host, "image": SHAPES[-1].name, "work": work}


def _starts(
    runtimes: Sequence[Runtime], folder: Path, runs: int, events: Events
) -> dict[str, tuple[float | None, float | None, float]]:
    """Medians in ms, less what the shell and entering take: from a folder, from a file, and 16 at once."""
    times: dict[tuple[str, str], list[float]] = {}
    for number in range(runs + 1):
        events.emit(Progress("starts", number, runs + 1, "rounds"))
        for runtime in runtimes:
            words = _words(runtime, folder)
            shell = "exec /usr/bin/true"
            lines = {"shell": shell, "folder": runtime.folder, "file": runtime.file}
            for kind, line in lines.items():
                if not line:
                    continue
                whole = line if kind == "shell" else runtime.exec_line(line, _TRUE)
                seconds = _run(runtime.command(whole, **words), runtime.variables)
                if number:  # the first one reads programs from the disk
                    times.setdefault((runtime.name, kind), []).append(seconds * 1000)
            if number % 5 == 1:
                best = runtime.file or runtime.folder
                command = runtime.command(runtime.exec_line(best, _TRUE), **words)
                seconds = _at_once(command, runtime)
                times.setdefault((runtime.name, "tasks"), []).append(seconds * 1000)
    found = {}
    for runtime in runtimes:
        shell_ms = statistics.median(times[runtime.name, "shell"])

        def less(kind: str, name: str = runtime.name, shell_ms: float = shell_ms) -> float | None:
            values = times.get((name, kind))
            return statistics.median(values) - shell_ms if values else None

        tasks = statistics.median(times[runtime.name, "tasks"]) - shell_ms
        found[runtime.name] = (less("folder"), less("file"), tasks)
    return found


def _start(command: list[str], runtime: Runtime) -> subprocess.Popen[bytes]:
    variables = {**os.environ, **runtime.variables}
    return subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _at_once(command: list[str], runtime: Runtime) -> float:
    """Seconds until the last of 16 has ended."""
    began = time.perf_counter()
    running = [_start(command, runtime) for _ in range(TASKS)]
    status = [each.wait() for each in running]
    seconds = time.perf_counter() - began
    if any(status):
        raise CellblockError(
            f"{runtime.name}: of {TASKS} starts at once {sum(map(bool, status))} failed",
            hint=f"try by hand: {' '.join(command)}",
        )
    return seconds


def _memory(runtime: Runtime, folder: Path) -> float:
    """KiB a task, of 16 that sleep: the proportional set size of all processes that there are for them."""
    words = _words(runtime, folder)
    best = runtime.file or runtime.folder
    command = runtime.command(runtime.exec_line(best, _SLEEP), **words)
    group = _unified_cgroup() / f"cellblock-bench-{os.getpid()}-{runtime.name}"
    group.mkdir()
    entering = ["sh", "-ec", f'echo $$ >{group}/cgroup.procs; exec "$@"', "enter", *command]
    started = [_start(entering, runtime) for _ in range(TASKS)]
    try:
        time.sleep(_SETTLE_S)
        return sum(_pss(each) for each in _members(group)) / TASKS
    finally:
        (group / "cgroup.kill").write_text("1")
        for each in started:
            each.wait()
        deadline = time.monotonic() + 10
        while group.exists() and time.monotonic() < deadline:
            with suppress(OSError):
                group.rmdir()
            time.sleep(0.1)


def _unified_cgroup() -> Path:
    """Where cgroup2 is mounted, alone or beside cgroups of version 1. Raises CellblockError."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, target, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(target)
    raise CellblockError(
        "cgroup2 is not mounted: memory of tasks is measured by its groups",
        hint="mount -t cgroup2 none /sys/fs/cgroup",
    )


def _members(group: Path) -> list[str]:
    return (group / "cgroup.procs").read_text().split()


def _pss(process: str) -> int:
    """KiB; proc(5), smaps_rollup."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def _run(command: Sequence[str], variables: dict[str, str] | None = None) -> float:
    """Seconds that it takes."""
    began = time.perf_counter()
    done = subprocess.run(
        command, env={**os.environ, **(variables or {})}, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        raise CellblockError(
            f"`{' '.join(command)}` ended with status {done.returncode}: {done.stderr.strip()[-1000:]}",
            hint="correct what it says, then run the benchmark again",
        )
    return seconds
