# SPDX-License-Identifier: Apache-2.0
"""Login sessions: root inside reaches neither the daemons of the login node nor other sessions' terminals."""

from __future__ import annotations

import re
import secrets
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from cellblock.cluster.engine.container_specs import container_name
from tests.integration.escape.arena import WORKER, Arena, Outcome, read
from tests.integration.escape.vouching import vouching_of

pytestmark = pytest.mark.integration

_BY_NUMBER = [
    f"{deed}-{daemon}"
    for deed in ("signal", "oom-score-of", "limits-of")
    for daemon in ("munged", "sshd", "agent")
]
_OTHERS = (
    "munge-key host-keys agent-socket sshd-descriptors see-processes mungeds-root"
    " abstract-sockets kept-descriptors"
)
ATTACKS = [*_BY_NUMBER, *_OTHERS.split(), "signal-any-number", "foreign-terminal"]
# What root of the login container can do itself.
_BELOW = [f"{deed}-{daemon}" for deed in ("signal", "oom-score-of") for daemon in ("munged", "sshd", "agent")]
_BELOW += ["signal-any-number", "see-processes", "agent-socket", "foreign-terminal"]


@dataclass(frozen=True)
class Login:
    """The login node, and its numbers in place of the worker's."""

    arena: Arena
    variables: dict[str, str]

    def attack(self, name: str, user: str = "root") -> Outcome:
        """Its outcome in a session of jail-enter."""
        return self._run("jail-enter", "--user", user, "--", *self._command("/escape/attack", name))

    def attack_from_outside(self, name: str) -> Outcome:
        """Its outcome for root of the login node."""
        return self._run(*self._command("/mnt/jail/root/escape/attack", name))

    def _command(self, program: str, name: str) -> list[str]:
        values = [f"{key}={value}" for key, value in self.variables.items()]
        return ["env", *values, "timeout", "20", program, name]

    def _run(self, *command: str) -> Outcome:
        done = self.arena.cluster.on("login", *command)
        return Outcome.read(done.out or done.err)


@pytest.fixture(scope="module")
def login(arena: Arena) -> Iterator[Login]:
    script = 'for p in /proc/[0-9]*; do echo "$(cat $p/comm 2>/dev/null) ${p#/proc/}"; done'
    lines = arena.cluster.on("login", "sh", "-c", script).ok().splitlines()
    numbers = {parts[0]: parts[1] for parts in (line.split() for line in reversed(lines)) if len(parts) == 2}
    with _terminal(arena, "login") as terminal:
        yield Login(
            arena,
            {
                **arena.variables,
                "MUNGED": numbers[vouching_of(arena.cluster).on_login],
                "KEY_HOLDER": vouching_of(arena.cluster).on_login,
                "SSHD": numbers["sshd"],
                "AGENT": numbers["ssh-agent"],
                # There is none: sshd stands for it.
                "SLURMD": numbers["sshd"],
                "NODE_PIDS": arena.cluster.on("login", "readlink", "/proc/1/ns/pid").ok().strip(),
                "TERMINAL": terminal,
            },
        )


@contextmanager
def _terminal(arena: Arena, hostname: str) -> Iterator[str]:
    """The number of a terminal of the container's own, with a shell that waits at it."""
    note = f"/run/escape-{secrets.token_hex(4)}"
    name = container_name(arena.cluster.request.name, hostname)
    argv = ["podman", "exec", "-t", name, "sh", "-c", f"tty >{note}; exec sleep 600"]
    waiting = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        arena.cluster.wait_until(
            "a terminal is there", lambda: bool(arena.cluster.on(hostname, "cat", note).out)
        )
        yield arena.cluster.on(hostname, "cat", note).ok().strip().rpartition("/")[2]
    finally:
        waiting.kill()
        waiting.wait()


@pytest.mark.parametrize("name", ATTACKS)
def test_root_in_a_session_is_held(name: str, login: Login) -> None:
    outcome = login.attack(name)
    assert outcome.kind in ("held", "absent"), outcome.what


@pytest.mark.parametrize("name", ATTACKS)
def test_a_user_in_a_session_is_held(name: str, login: Login) -> None:
    outcome = login.attack(name, user="eve")
    assert outcome.kind in ("held", "absent"), outcome.what


@pytest.mark.parametrize("name", _BELOW)
def test_root_outside_is_not(name: str, login: Login) -> None:
    """What proves that the tests above can fail."""
    outcome = login.attack_from_outside(name)
    assert outcome.kind == "escaped", outcome.what


@contextmanager
def _session(arena: Arena, out: Path, script: str) -> Iterator[None]:
    """A session with a terminal of its own, which ends with the block."""
    name = container_name(arena.cluster.request.name, "login")
    here = arena.inside(out)
    text = f"{script}; until [ -e {here}/over ]; do sleep 0.1; done"
    argv = ["podman", "exec", "-t", name, "jail-enter", "--user", "bob", "--", "sh", "-c", text]
    running = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        (out / "over").touch()
        running.wait(timeout=60)


def test_root_in_a_session_finds_no_terminal_but_its_own(arena: Arena) -> None:
    out = arena.out(f"terminals-{secrets.token_hex(4)}")
    with _session(arena, out, f"tty >{arena.inside(out)}/tty; ls /dev/pts >{arena.inside(out)}/list"):
        arena.cluster.wait_until("bob has a terminal", lambda: bool(read(out / "list")))
        assert (out / "tty").read_text().startswith("/dev/pts/")
        look = "tty; ls /dev/pts; for t in /dev/pts/[0-9]*; do [ $t = $(tty) ] || echo other $t; done"
        done = arena.cluster.jail("sh", "-c", look, tty=True)
        assert "other" not in done.out
        # By its number, too: bob's is another device of the same number.
        number = (out / "tty").read_text().strip()
        before = (out / "list").read_text()
        arena.cluster.jail("sh", "-c", f"echo from root >{number}; true", tty=True)
        assert (out / "list").read_text() == before


def test_a_terminal_of_a_job_is_not_one_of_another(arena: Arena) -> None:
    out = arena.out(f"terminals-{secrets.token_hex(4)}")
    here = arena.inside(out)
    name = container_name(arena.cluster.request.name, "login")
    text = f"tty >{here}/tty; until [ -e {here}/over ]; do sleep 0.1; done"
    argv = ["podman", "exec", "-t", name, "jail-enter", "--user", "bob", "--",
            "srun", "-n1", "-w", WORKER, "--pty", "sh", "-c", text]  # fmt: skip
    running = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        arena.cluster.wait_until("bob has a terminal", lambda: bool(read(out / "tty")))
        number = (out / "tty").read_text().strip()
        assert number.startswith("/dev/pts/")
        done = arena.srun("sh", "-c", f"ls /dev/pts; echo reached >{number}", options=("-n1",))
        assert done.out.split() == ["ptmx"], done
    finally:
        (out / "over").touch()
        running.wait(timeout=60)


@pytest.fixture(scope="module")
def ssh(arena: Arena) -> str:
    """How eve calls ssh, with a key of hers."""
    script = (
        "mkdir -p -m 700 .ssh; test -e .ssh/id_own || ssh-keygen -q -t ed25519 -N '' -f .ssh/id_own;"
        " cat .ssh/id_own.pub >>.ssh/authorized_keys"
    )
    arena.cluster.jail("sh", "-c", script, user="eve").ok()
    return "ssh -i .ssh/id_own -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"


_ON_A_WORKER = (
    "signal-slurmd signal-sshd signal-agent signal-any-number munge-key agent-socket sshd-descriptors"
    " see-processes foreign-terminal oom-score-of-sshd oom-score-of-slurmd"
)


@pytest.mark.parametrize("name", _ON_A_WORKER.split())
def test_who_logs_in_to_a_worker_is_held(name: str, arena: Arena, ssh: str) -> None:
    wait = f"until {ssh} {WORKER} true 2>/dev/null; do sleep 0.3; done"
    script = f"{wait}; {ssh} {WORKER} {shlex.quote(arena.attack(name))}"
    done = arena.cluster.jail("timeout", "90", "salloc", "-Q", "-w", WORKER, "sh", "-c", script, user="eve")
    outcome = Outcome.read(done.out or done.err)
    assert outcome.kind in ("held", "absent"), outcome.what


def test_connections_that_log_nobody_in_keep_nobody_else_out(arena: Arena, ssh: str) -> None:
    """More than sshd takes, of one job; it waits for each as long as LoginGraceTime."""
    out = arena.out(f"connections-{secrets.token_hex(4)}")
    here = arena.inside(out)
    script = (
        f"for n in $(seq 150); do exec {{fd}}<>/dev/tcp/login/22; done 2>/dev/null; : >{here}/open;"
        f" until [ -e {here}/over ]; do sleep 0.1; done"
    )
    job = arena.submit(script, "-n1", "-o", "/dev/null", user="eve")
    try:
        arena.cluster.wait_until("they are open", (out / "open").exists)
        tries = f"for n in $(seq 8); do {ssh} login echo in; done"
        done = arena.cluster.jail("timeout", "60", "sh", "-c", tries, user="eve")
        assert done.out.split() == ["in"] * 8, done.err
    finally:
        (out / "over").touch()
        arena.wait(job)


@pytest.mark.parametrize("to", ["login", WORKER])
def test_what_ssh_forwards_is_opened_in_the_jail(to: str, arena: Arena, ssh: str) -> None:
    """Sockets of the node by -L, places of its own by -R, ports that are the node's."""
    socket = f"/tmp/forwarded-{secrets.token_hex(4)}"
    options = "-fN -o ExitOnForwardFailure=yes -o ControlMaster=yes"
    script = f"""until {ssh} {to} true 2>/dev/null; do sleep 0.3; done
        {ssh} {options} -S {socket}.1 -L {socket}:/run/sshd/host-keys.agent {to} && echo forwards
        SSH_AUTH_SOCK={socket} timeout 10 ssh-add -l; {ssh} -S {socket}.1 -O exit {to}
        for place in /run/bcast/x:{socket} 600:localhost:22; do
            {ssh} {options} -S {socket}.2 -R $place {to} && {ssh} -S {socket}.2 -O exit {to} && echo reached
        done; true"""
    command = ("sh", "-c", script) if to == "login" else ("salloc", "-Q", "-w", to, "sh", "-c", script)
    done = arena.cluster.jail("timeout", "90", *command, user="eve")
    assert done.out.split() == ["forwards"], done
    agent = ("env", "SSH_AUTH_SOCK=/run/sshd/host-keys.agent", "ssh-add", "-l")
    assert "ED25519" in arena.cluster.on(to, *agent).ok()  # what was looked for is there


def test_the_daemons_live(arena: Arena, login: Login) -> None:
    """After all of that."""
    vouching = vouching_of(arena.cluster)
    own = {
        "login": ("sshd", "ssh-agent", vouching.on_login),
        WORKER: ("slurmd", "sshd", vouching.on_worker),
    }
    for hostname, names in own.items():
        commands = [command for _, command in arena.cluster.processes(hostname)]
        for name in names:
            assert any(re.match(rf"(/bin/sh )?(/\S*/)?{name}\b", command) for command in commands), commands
