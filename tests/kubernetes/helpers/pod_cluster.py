# SPDX-License-Identifier: Apache-2.0
"""Gives the escape tests a cluster of pods, as tests/integration/escape/arena.py gives one of containers."""

from __future__ import annotations

import os
import pty
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.integration.escape.arena import DAEMON_UID, WORKER, Arena, compile_attacks
from tests.integration.escape.vouching import MUNGE
from tests.integration.local_cluster import Done, LocalCluster, Unclear
from tests.kubernetes.helpers.small_cluster import Site

_CONTAINERS = {"controller": "slurmctld", "login": "sshd", "worker": "slurmd"}
# The one folder of a worker's, outside its image, whose files can be run.
_PROGRAMS = "/var/spool"
ATTACK = f"{_PROGRAMS}/escape-attack"
"""The suite's program on the worker, outside the jail."""
_COMMAND_S = 180


class PodCluster(LocalCluster):
    """Commands in the containers of pods, by the names that the local cluster's have."""

    def __init__(self, site: Site) -> None:
        named: Any = SimpleNamespace(name=site.space)
        super().__init__(named, SimpleNamespace(status=SimpleNamespace(release="24.11")), None)  # type: ignore[arg-type]
        object.__setattr__(self, "site", site)

    site: Site

    @property
    def root(self) -> Path:
        return self.site.folder / "volumes/jail/root"

    def command(self, hostname: str, *command: str, options: tuple[str, ...] = ()) -> list[str]:
        """What runs `command` in a pod's container."""
        role = hostname.partition("-")[0]
        pod = hostname if role == "worker" else f"{hostname}-0"
        kubernetes = self.site.kubernetes
        which = (f"--namespace={self.site.space}", f"--container={_CONTAINERS[role]}", *options, pod)
        kubectl = (str(kubernetes.folder / "bin/kubectl"), f"--kubeconfig={kubernetes.configuration}")
        return [*kubectl, "exec", *which, "--", *command]

    def on(
        self,
        hostname: str,
        *command: str,
        tty: bool = False,
        stdin: str = "",
        timeout_s: int = _COMMAND_S,
    ) -> Done:
        options = ("--stdin",) if stdin else ()
        try:
            done = subprocess.run(
                self.command(hostname, *command, options=options),
                input=stdin,
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            raise Unclear(f"{hostname}: {' '.join(command)} is not over after {timeout_s} s") from None
        return Done(done.returncode, done.stdout, done.stderr)

    def jail(
        self,
        *command: str,
        user: str = "root",
        tty: bool = False,
        stdin: str = "",
        timeout_s: int = _COMMAND_S,
    ) -> Done:
        enter = ("jail-enter", "--plan", "/etc/cellblock/jail.fstab", "--user", user, "--")
        return self.on("login", *enter, *command, tty=tty, stdin=stdin, timeout_s=timeout_s)

    def wait_until(self, what: str, condition: Callable[[], bool], timeout_s: float = _COMMAND_S) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() >= deadline:
                raise Unclear(f"not after {timeout_s} s: {what}")
            time.sleep(0.3)


@contextmanager
def pod_arena(site: Site, folder: Path) -> Iterator[Arena]:
    """The worker as it is rendered, and what is to be reached there."""
    cluster = PodCluster(site)
    program, built, _ = compile_attacks(folder)
    inside = cluster.root / "escape"
    (inside / "lib").mkdir(parents=True)
    for library in built:
        (inside / "lib" / library.name).write_bytes(library.read_bytes())
    (inside / "out").mkdir()
    (inside / "out").chmod(0o777)
    (inside / "attack").write_bytes(program.read_bytes())
    (inside / "attack").chmod(0o755)
    for name in ("eve", "bob"):
        cluster.jail("useradd", "--create-home", "--shell", "/bin/bash", name).ok()
    cluster.wait_until(
        "slurmctld knows eve", lambda: cluster.on("controller", "getent", "passwd", "eve").status == 0
    )
    with ExitStack() as stack:
        arena = Arena(cluster, "eve", f"/run/canary-{secrets.token_hex(6)}", secrets.token_hex(16), "", {})
        arena.mark = f"escape-mark-{secrets.token_hex(6)}"
        arena.level = "capabilities"
        arena.variables.update(_lay_out(arena, cluster, program, stack))
        yield arena


def _lay_out(arena: Arena, cluster: PodCluster, program: Path, stack: ExitStack) -> dict[str, str]:
    victim = f"{_PROGRAMS}/escape-victim"
    put = cluster.command(WORKER, "sh", "-c", f"cat >{ATTACK}; chmod 755 {ATTACK}", options=("--stdin",))
    subprocess.run(put, input=program.read_bytes(), check=True)
    cluster.on(WORKER, "sh", "-c", f"cp /usr/bin/sleep {victim}; chmod 755 {victim}").ok()
    daemons_file = "/run/escape-daemon"
    lay = (
        f"umask 077; echo {arena.secret} >{arena.canary}; echo {arena.secret} >{daemons_file}; "
        f"chown {DAEMON_UID} {daemons_file}"
    )
    cluster.on(WORKER, "sh", "-c", lay).ok()
    beside = cluster.root.parent / "canary"
    beside.write_text(arena.secret)
    beside.chmod(0o600)
    cluster.on(WORKER, "env", f"SECRET={arena.secret}", ATTACK, "plant-key").ok()
    as_daemon = f"setpriv --reuid {DAEMON_UID} --regid {DAEMON_UID} --clear-groups"
    terminal = _start(cluster, f"tty >/run/escape-terminal; exec {victim} 3602", stack, tty=True)
    shown = cluster.on(WORKER, "cat", "/run/escape-terminal").ok().strip()
    assert shown.startswith("/dev/pts/"), f"process {terminal} has no terminal: {shown}"
    first = {
        name: cluster.numbers_of(WORKER, program)[0]
        for name, program in (("SLURMD", "slurmd"), ("MUNGED", "munged"), ("SSHD", "sshd"))
    }
    return {
        **MUNGE.variables(cluster, WORKER),
        **first,
        "AGENT": cluster.numbers_of(WORKER, "ssh-agent")[0],
        "CANARY": arena.canary,
        "VICTIM": str(_start(cluster, f"exec {victim} 3600", stack)),
        "DAEMON": str(_start(cluster, f"exec {as_daemon} {victim} 3601", stack)),
        "DAEMON_UID": str(DAEMON_UID),
        "DAEMON_FILE": daemons_file,
        "SLURMD_PORT": "618",
        "NODE_PIDS": cluster.on(WORKER, "readlink", "/proc/self/ns/pid").ok().strip(),
        "IPC_KEY": str(secrets.randbelow(1 << 30) + 1),
        "TERMINAL": shown.rpartition("/")[2],
        "VOLUME_CANARY_INODE": str(beside.stat().st_ino),
        "MARK": arena.mark,
    }


def _start(cluster: PodCluster, script: str, stack: ExitStack, *, tty: bool = False) -> int:
    """A process outside the jail that lives until the end; returns its number in the worker's pod."""
    note = f"/run/escape-{secrets.token_hex(4)}"
    options = ("--stdin", "--tty") if tty else ()
    command = cluster.command(WORKER, "sh", "-c", f"echo $$ >{note}; {script}", options=options)
    outer, inner = pty.openpty()
    stack.callback(os.close, outer)
    running = subprocess.Popen(
        command,
        stdin=inner if tty else subprocess.DEVNULL,
        stdout=inner if tty else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(inner)
    stack.callback(running.wait)
    stack.callback(running.kill)
    found: list[int] = []

    def there() -> bool:
        look = f"read p <{note} && grep -qa escape-victim /proc/$p/cmdline && echo $p"
        done = cluster.on(WORKER, "sh", "-c", look)
        if done.status == 0:
            found.append(int(done.out))
        return bool(found)

    cluster.wait_until(f"a process outside: {script}", there, 60)
    return found[0]
