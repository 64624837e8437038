# SPDX-License-Identifier: Apache-2.0
"""Sets up the cluster for the escape tests: a worker with every capability, and what must not be reached.

A node of real metal gives slurmd everything, so the workers of this cluster do, too: what holds here, the
jail holds, and not the container around the worker.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import pytest

from cellblock.cluster import ClusterSpec
from cellblock.cluster.changing import cluster_plan
from cellblock.cluster.engine import container_specs
from cellblock.cluster.engine.container_specs import Container, container_name
from tests.integration.escape.vouching import numbers_of, vouching_of
from tests.integration.jobs import ended
from tests.integration.local_cluster import Done, LocalCluster, Unclear, podman

Level = Literal["filesystem", "capabilities", "pid"]
LEVELS: tuple[Level, ...] = get_args(Level)

WORKER = "worker-1"
# Some user of a daemon outside, whom the jail need not know.
DAEMON_UID = 4242
_FOLDER = Path(__file__).parent
_ATTACKS = _FOLDER / "attacks"
# Of the worker: what a user may read, run and write, once he is out.
OPEN = "/escape-open"
_LAY_OPEN = f"""umask 022; install -d -m 1777 {OPEN}; echo $1 >{OPEN}/0
printf '#!/bin/sh\\ncat {OPEN}/0\\n' >{OPEN}/program; chmod 755 {OPEN}/program"""
# What is opened or made there, and of the secrets; written by the program of the attacks (attacks/watch.c).
_SEEN = "/run/escape-seen"
# Seconds for one attack: the slowest takes less than one.
_ATTACK_S = 10


@dataclass(frozen=True)
class Outcome:
    """How an attack ended.

    `escaped`; `held`; `absent` when this kernel has nothing of the kind; `broken`: the test is wrong.
    """

    kind: str
    what: str

    @staticmethod
    def read(text: str) -> Outcome:
        """The last line of an attack's output."""
        line = text.strip().splitlines()[-1] if text.strip() else "nothing was printed"
        kind, colon, what = line.partition(": ")
        known = colon and kind in ("escaped", "held", "absent", "broken")
        return Outcome(kind, what) if known else Outcome("broken", text.strip() or line)


def held(what: str) -> Outcome:
    return Outcome("held", what)


def escaped(what: str) -> Outcome:
    return Outcome("escaped", what)


def broken(what: str) -> Outcome:
    return Outcome("broken", what)


@dataclass
class Arena:
    """The cluster, what is to be reached on it, and the level that it is at."""

    cluster: LocalCluster
    user: str
    canary: str
    secret: str
    # Name of files that an attack writes outside, in whatever folder.
    mark: str
    variables: dict[str, str]
    level: Level | None = None
    _batches: dict[tuple[Level, str], dict[str, Outcome]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """/escape of the jail, on this machine."""
        return self.cluster.root / "escape"

    def switch(self, level: Level) -> None:
        """Bring the whole cluster to `level`; a probe says that jobs run there."""
        if self.level == level:
            return
        set_level(self.cluster, level)
        done = self.srun("true")
        if done.status:
            raise Unclear(f"level {level} takes no jobs: {done.err}")
        self.level = level

    def srun(self, *command: str, user: str = "root", options: tuple[str, ...] = ()) -> Done:
        """A step on the worker, submitted in the jail of the login node."""
        return self.cluster.jail("srun", "-w", WORKER, *options, *command, user=user)

    def submit(self, script: str, *options: str, user: str = "root") -> Done:
        """A batch job on the worker. Its output is where `options` say."""
        text = f"#!/bin/bash\n{script}\n"
        command = ("sbatch", "--parsable", "--no-requeue", "-w", WORKER, *options)
        return self.cluster.jail(*command, user=user, stdin=text)

    def wait(self, *submitted: Done) -> None:
        """Wait for the end of batch jobs."""
        for done in submitted:
            ended(self.cluster, done.ok().strip())

    def sbatch(self, script: str, *options: str, user: str = "root", refusable: bool = False) -> Done:
        """The same, and its end.

        `refusable` when sbatch may know no such option, and that is an answer, too.
        """
        done = self.submit(script, *options, user=user)
        if done.status == 0 or not refusable:
            self.wait(done)
        return done

    def on_worker(self, *command: str) -> Done:
        """A command on the worker, outside the jail."""
        return self.cluster.on(WORKER, *command)

    def attack(self, name: str) -> str:
        """The command that runs the attack `name` in a job, as a line of shell."""
        variables = " ".join(f"{key}={shlex.quote(value)}" for key, value in self.variables.items())
        return f"env {variables} timeout {_ATTACK_S} /escape/attack {name}"

    def batch(self, level: Level, user: str, names: list[str]) -> dict[str, Outcome]:
        """The outcomes of all attacks `names`, run in one step by `user`; kept for the next who asks."""
        if (level, user) not in self._batches:
            out = self.out(f"{level}-{user}")
            lines = [f"{self.attack(name)} >{self.inside(out)}/{name} 2>&1 </dev/null" for name in names]
            script = self.folder / f"{level}-{user}.sh"
            # The shell's parent is the step's slurmstepd.
            script.write_text("cd /\nexport STEPD=$PPID\n" + "\n".join(lines) + "\n")
            done = self.srun("bash", f"/escape/{script.name}", user=user)
            found = {name: read(out / name) for name in names}
            self._batches[level, user] = {
                name: Outcome.read(text or f"{name} did not run: {done.err}") for name, text in found.items()
            }
        return self._batches[level, user]

    def forget(self, level: Level, user: str) -> None:
        """Have the next who asks for that batch run it again."""
        self._batches.pop((level, user), None)

    def out(self, name: str) -> Path:
        """A new folder in the jail that everybody may write."""
        path = self.folder / "out" / name
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o777)
        return path

    def inside(self, path: Path) -> str:
        """The name in the jail of a path of its tree."""
        return f"/{path.relative_to(self.cluster.root)}"

    @contextmanager
    def watched(self) -> Iterator[list[str]]:
        """Fills in, at the end, what was opened and made outside: in OPEN, the canary, munge's key."""
        seen: list[str] = []
        first = self._seen()
        yield seen
        last = self._seen()
        seen.extend(line for line in last[len(first) :] if "escape-sync-" not in line)

    def _seen(self) -> list[str]:
        """All that the watch has told up to now; it tells in order."""
        sync = f"escape-sync-{secrets.token_hex(4)}"
        script = f": >{OPEN}/$1; until grep -q $1 {_SEEN}; do sleep 0.05; done; rm {OPEN}/$1; cat {_SEEN}"
        return self.on_worker("sh", "-c", script, "sh", sync).ok().splitlines()

    def written(self, *folders: str, hostname: str = WORKER) -> str | None:
        """A file with our mark outside the jail, which is removed; None when there is none."""
        paths = [f"{folder}/{self.mark}" for folder in folders]
        script = 'for p; do if [ -e "$p" ]; then echo "$p"; rm -f "$p"; fi; done'
        return self.cluster.on(hostname, "sh", "-c", script, "sh", *paths).ok().strip() or None


def read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def set_level(cluster: LocalCluster, level: Level) -> None:
    """Write the level into plugstack.conf, and wait until the worker has the new one."""
    file = cluster.root.parent.parent / "config" / "slurm" / "plugstack.conf"
    file.write_text(re.sub(r"level=\w+", f"level={level}", file.read_text()))
    cluster.reconfigure()
    look = ("cmp", "-s", "-", "/var/spool/slurmd/conf-cache/plugstack.conf")
    cluster.wait_until(
        f"{WORKER} has level={level}", lambda: cluster.on(WORKER, *look, stdin=file.read_text()).status == 0
    )


# Of linux/capability.h, by number.
_CAPABILITIES = """
    CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
    NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT
    SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE
    AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ
    PERFMON BPF CHECKPOINT_RESTORE
"""


def own_capabilities() -> tuple[str, ...]:
    """Every capability that this process may hand on: of a machine that is a container itself, not all."""
    status = Path("/proc/self/status").read_text()
    bounding = int(status.partition("CapBnd:")[2].split()[0], 16)
    return tuple(name for number, name in enumerate(_CAPABILITIES.split()) if bounding & 1 << number)


def with_all_capabilities(plain: tuple[Container, ...]) -> tuple[Container, ...]:
    """Workers as real metal would have them: nothing dropped, no seccomp filter, a root to write to."""
    security = ("seccomp=unconfined", "apparmor=unconfined")
    return tuple(
        replace(one, read_only=False, cap_add=own_capabilities(), security_opt=security)
        if one.role == "worker"
        else one
        for one in plain
    )


def patch_workers(patch: pytest.MonkeyPatch) -> None:
    """Let `up` make the workers with all capabilities."""

    def plan(spec: ClusterSpec, *rest: object) -> tuple[Container, ...]:
        return with_all_capabilities(container_specs.plan(spec, *rest))  # type: ignore[arg-type]

    patch.setattr(cluster_plan, "plan", plan)


def compile_attacks(folder: Path) -> tuple[Path, tuple[Path, ...], tuple[Path, ...]]:
    """The attack program, for a jail of any distribution; libraries; clients."""
    names = ("loaded.so", "launch.so", "odd_requests.so", "packed_texts.so")
    program, libraries = folder / "attack", tuple(folder / name for name in names)
    flags = ("gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror")
    sources = sorted(str(path) for path in _ATTACKS.glob("*.c"))
    subprocess.run([*flags, "-static", "-o", str(program), *sources], check=True)
    for library in libraries:
        source = str(_ATTACKS / "library" / f"{library.stem}.c")
        subprocess.run([*flags, "-shared", "-fPIC", "-o", str(library), source, "-ldl"], check=True)
    clients = tuple(folder / name for name in ("pmix-client", "forward-data", "pmi-messages"))
    for client in clients:
        source = str(_ATTACKS / "library" / f"{client.name.replace('-', '_')}.c")
        subprocess.run([*flags, "-rdynamic", "-o", str(client), source, "-ldl"], check=True)
    return program, libraries, clients


@contextmanager
def open_arena(cluster: LocalCluster, folder: Path) -> Iterator[Arena]:
    """Lay out what is to be reached on the worker, and the attacks in the jail."""
    compiled = compile_attacks(folder)
    with ExitStack() as stack:
        yield _lay_out(cluster, *compiled, stack)


def _lay_out(
    cluster: LocalCluster,
    program: Path,
    libraries: tuple[Path, ...],
    clients: tuple[Path, ...],
    stack: ExitStack,
) -> Arena:
    secret, mark = secrets.token_hex(16), f"escape-mark-{secrets.token_hex(6)}"
    canary = f"/root/canary-{secrets.token_hex(6)}"
    _allow_devices(cluster)
    inside = cluster.root / "escape"
    (inside / "lib").mkdir(parents=True)
    (inside / "out").mkdir()
    (inside / "out").chmod(0o777)
    for compiled in (program, *clients):
        (inside / compiled.name).write_bytes(compiled.read_bytes())
        (inside / compiled.name).chmod(0o755)
    for library in libraries:
        (inside / "lib" / library.name).write_bytes(library.read_bytes())
    for name in ("eve", "bob"):
        cluster.jail("useradd", "--create-home", "--shell", "/bin/bash", name).ok()
    _allow_no_jail(cluster, ("root", "eve"))
    volume_canary = cluster.root.parent / "canary"
    volume_canary.write_text(secret)
    volume_canary.chmod(0o600)
    cluster.on(WORKER, "sh", "-c", f"umask 077; echo {secret} >{canary}").ok()
    file = f"{OPEN}/daemon"
    cluster.on(WORKER, "sh", "-c", _LAY_OPEN, "sh", secret).ok()
    lay = f"umask 077; echo {secret} >{file}; chown {DAEMON_UID} {file}"
    cluster.on(WORKER, "sh", "-c", lay).ok()
    cluster.on(WORKER, "sh", "-c", "cp /usr/bin/sleep /escape-victim; chmod 755 /escape-victim").ok()
    name = container_name(cluster.request.name, WORKER)
    subprocess.run(["podman", "cp", str(program), f"{name}:/usr/local/bin/escape-attack"], check=True)
    arena = Arena(cluster, "eve", canary, secret, mark, {})
    cluster.on(WORKER, "env", f"SECRET={secret}", "escape-attack", "plant-key").ok()
    victim = _start(cluster, "exec /escape-victim 3600", stack)
    as_daemon = f"setpriv --reuid {DAEMON_UID} --regid {DAEMON_UID} --clear-groups"
    daemon = _start(cluster, f"exec {as_daemon} /escape-victim 3601", stack)
    terminal = _start(cluster, "tty >/run/escape-terminal; exec /escape-victim 3602", stack, tty=True)
    shown = cluster.on(WORKER, "cat", "/run/escape-terminal").ok().strip()
    assert re.fullmatch(r"/dev/pts/\d+", shown), f"process {terminal} has no terminal: {shown}"
    vouching = vouching_of(cluster)
    munged = find_process(cluster, "munged")
    look = f"exec -a escape-victim escape-attack watch {OPEN} {canary} {vouching.key_at(munged)} >{_SEEN}"
    _start(cluster, f"exec bash -c '{look}'", stack)
    arena.variables.update(
        vouching.variables(cluster, WORKER),
        CANARY=canary,
        VICTIM=str(victim),
        DAEMON=str(daemon),
        DAEMON_UID=str(DAEMON_UID),
        DAEMON_FILE=file,
        SLURMD=find_process(cluster, "slurmd"),
        SLURMD_PORT=_slurmd_port(cluster),
        MUNGED=munged,
        NODE_PIDS=cluster.on(WORKER, "readlink", "/proc/self/ns/pid").ok().strip(),
        IPC_KEY=str(secrets.randbelow(1 << 30) + 1),
        SSHD=find_process(cluster, "sshd"),
        AGENT=find_process(cluster, "ssh-agent"),
        TERMINAL=shown.rpartition("/")[2],
        VOLUME_CANARY_INODE=str(volume_canary.stat().st_ino),
        MARK=mark,
    )
    return arena


def _allow_no_jail(cluster: LocalCluster, users: tuple[str, ...]) -> None:
    """As at a site where these may run jobs outside, submitted from outside."""
    uids = [int(cluster.jail("id", "-u", user).ok()) for user in users]
    tickets = cluster.root.parent / "no-jail"
    for uid in uids:
        (tickets / str(uid)).mkdir(parents=True)
        (tickets / str(uid)).chmod(0o700)
        os.chown(tickets / str(uid), uid, uid)
    file = cluster.root.parent.parent / "config" / "slurm" / "plugstack.conf"
    listed = ",".join(str(uid) for uid in uids)
    more = f"no-jail-uids={listed} no-jail-tickets=/mnt/jail/no-jail"
    file.write_text(re.sub(r"(level=\w+)", rf"\1 {more}", file.read_text()))


def _start(cluster: LocalCluster, script: str, stack: ExitStack, *, tty: bool = False) -> int:
    """A process outside that lives until the end; returns its number on the worker."""
    note = f"/run/escape-{secrets.token_hex(4)}"
    name = container_name(cluster.request.name, WORKER)
    argv = ["podman", "exec", *(["-t"] if tty else []), name, "sh", "-c", f"echo $$ >{note}; {script}"]
    running = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    stack.callback(running.wait)
    stack.callback(running.kill)
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        done = cluster.on(
            WORKER, "sh", "-c", f"read p <{note} && grep -qa escape-victim /proc/$p/cmdline && echo $p"
        )
        if done.status == 0:
            return int(done.out)
        time.sleep(0.1)
    raise AssertionError(f"a process outside did not start: {script}")


def find_process(cluster: LocalCluster, name: str) -> str:
    """The number on the worker of the process that runs the program `name`.

    Daemons that attacks ended are started again: they are waited for.
    """
    found: list[str] = []

    def look_again() -> bool:
        found[:] = numbers_of(cluster, WORKER, name)
        return bool(found)

    cluster.wait_until(f"{name} runs on {WORKER}", look_again)
    return found[0]


def _slurmd_port(cluster: LocalCluster) -> str:
    look = ("sed", "-n", "s/^SlurmdPort=//p", "/etc/slurm/slurm.conf")
    return cluster.on("controller", *look).ok().strip() or "6818"


def _allow_devices(cluster: LocalCluster) -> None:
    """No list of devices above the worker, either: cgroup v1's is a file, v2's a program of the engine's."""
    shown = podman("inspect", "--format", "{{.Id}}", container_name(cluster.request.name, WORKER))
    for file in Path("/sys/fs/cgroup/devices").glob(f"**/*{shown.strip()}*/devices.allow"):
        file.write_text("a")
