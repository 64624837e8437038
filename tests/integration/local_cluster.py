# SPDX-License-Identifier: Apache-2.0
"""Gives tests a running cluster on this machine: commands in its containers, users, waits."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cellblock.cluster import ClusterStatus
from cellblock.cluster.engine.api import podman_environment
from cellblock.cluster.engine.container_specs import container_name
from cellblock.cluster.proof_user import MAY_SUBMIT
from cellblock.cluster.up import UpResult
from cellblock.cluster.up_request import UpRequest, volume_path
from tests.integration.cluster.container_shell import ContainerShells, NotOver, run_by_podman
from tests.integration.condition import condition_of, nodes_of

# Seconds for one command in the cluster, or for a condition. Jobs here take one or two; on a loaded machine
# Slurm's own timers add up: its look at limits (30), a message sent again (60).
_TIMEOUT_S = 180
# Seconds for a node to be usable after `scontrol update state=resume`, unless its slurmd is at fault.
_RESUMED_S = 30
# Seconds for apt-get, which fetches and unpacks a hundred packages.
_INSTALL_S = 600
# The comment of jobs that outlive a failed test: those of a fixture of the session.
KEPT = "kept"
_PROCESSES = """\
for (glob "/proc/[0-9]*") {
    my $uid = (stat)[4];
    open my $file, "<", "$_/cmdline" or next;
    my $line = do { local $/; <$file> } // "";
    $line =~ tr/\\0/ /;
    print "$uid $line\\n" if defined $uid;
}
"""


def podman(*arguments: str) -> str:
    """What podman, as clusters use it, prints on both outputs: `podman logs` keeps the two apart."""
    done = subprocess.run(
        ["podman", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, **podman_environment()},
    )
    assert done.returncode == 0, f"{shlex.join(done.args)}: status {done.returncode}: {done.stdout}"
    return done.stdout


def restart_container(name: str) -> None:
    """Restart a container; once more where podman gives up one that ended too late on a busy machine."""
    command = ("restart", "--time", "5", name)
    try:
        podman(*command)
    except AssertionError:
        podman(*command)


class Unclear(AssertionError):
    """A command or a condition was waited for in vain: the cluster is at fault, or the machine is busy."""


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    status: int
    out: str
    err: str

    def ok(self) -> str:
        """Its output; an assertion that it ended well."""
        assert self.status == 0, f"status {self.status}\n{self.out}\n{self.err}"
        return self.out


@dataclass(frozen=True)
class LocalCluster:
    """A running cluster and ways to run things in it."""

    request: UpRequest
    result: UpResult
    shells: ContainerShells = field(repr=False, compare=False)
    # The last command and its answer: what a condition that does not come true has seen.
    last: list[str] = field(default_factory=list, repr=False, compare=False)
    # The test after whose failure it could not be mended.
    spoiled: list[str] = field(default_factory=list, repr=False, compare=False)

    @property
    def status(self) -> ClusterStatus:
        """As `up` returned it."""
        return self.result.status

    @property
    def root(self) -> Path:
        """The jail's tree on this machine."""
        return volume_path(self.request.name) / "root"

    def on(
        self, hostname: str, *command: str, tty: bool = False, stdin: str = "", timeout_s: int = _TIMEOUT_S
    ) -> Done:
        """Run `command` as root in a container, outside the jail."""
        container = container_name(self.request.name, hostname)
        try:
            if tty:
                answer = run_by_podman(
                    container, command, stdin, timeout_s, self.shells.environment, tty=True
                )
            else:
                answer = self.shells.run(container, command, stdin, timeout_s)
        except NotOver as error:
            what = f"{hostname}: {shlex.join(command)} is not over after {timeout_s} s"
            name = self.request.name
            raise Unclear(f"{what}; {nodes_of(name)}\n{error.output}\n{condition_of(name)}") from None
        status, out, err = answer
        self.last[:] = [f"--- {hostname}: {shlex.join(command)}: status {status}\n{out}{err}"]
        return Done(status, out, err)

    def jail(
        self,
        *command: str,
        user: str = "root",
        tty: bool = False,
        stdin: str = "",
        timeout_s: int = _TIMEOUT_S,
    ) -> Done:
        """Run `command` in the jail on the login node, as a user of the jail."""
        argv = ("jail-enter", "--user", user, "--", *command)
        return self.on("login", *argv, tty=tty, stdin=stdin, timeout_s=timeout_s)

    def client(
        self, *command: str, user: str, tty: bool = False, stdin: str = "", timeout_s: int = _TIMEOUT_S
    ) -> Done:
        """Run a client command of Slurm on the login node: in the jail, but root's outside.

        Root in the jail is nobody to Slurm and submits nothing; an administrator's jobs run as root inside.
        """
        if user == "root":
            return self.on("login", *command, tty=tty, stdin=stdin, timeout_s=timeout_s)
        return self.jail(*command, user=user, tty=tty, stdin=stdin, timeout_s=timeout_s)

    def add_user(self, name: str, *options: str) -> None:
        """Make a user of the jail, unless there is one, and wait until slurmctld takes their jobs."""
        make = 'id "$0" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$@" "$0"'
        self.jail("sh", "-c", make, name, *options).ok()
        ask = ("getent", "passwd", name)
        self.wait_until(f"slurmctld knows {name}", lambda: self.on("controller", *ask).status == 0)
        if any(container.role == "accounting" for container in self.status.containers):
            association = ("sh", "-c", MAY_SUBMIT, name)
            self.wait_until(
                f"{name} has an association", lambda: self.on("controller", *association).status == 0
            )

    def install(self, *packages: str) -> None:
        """Install packages in the jail, as its administrator would, but without fsync(2) for each file."""
        options = ["-qq", "-o", "Dpkg::Use-Pty=0", "-o", "Dpkg::Options::=--force-unsafe-io"]
        if not self.result.build.variant.distribution.check_valid_until:
            options += ["-o", "Acquire::Check-Valid-Until=false"]
        self.jail("apt-get", *options, "update", timeout_s=_INSTALL_S).ok()
        install = ("apt-get", *options, "-y", "--no-install-recommends", "install", *packages)
        self.jail("env", "DEBIAN_FRONTEND=noninteractive", *install, timeout_s=_INSTALL_S).ok()

    def processes(self, hostname: str) -> list[tuple[str, str]]:
        """(uid, command line) of the processes in a container; its image needs no ps for that.

        By one process: a shell starts two for each that it looks at, and conditions look five times a second.
        """
        lines = self.on(hostname, "perl", "-e", _PROCESSES).ok().splitlines()
        pairs = [line.partition(" ") for line in lines]
        return [(uid, command.strip()) for uid, _, command in pairs]

    def job(self, job_id: str) -> dict[str, str]:
        """What scontrol shows of a job."""
        text = self.on("controller", "scontrol", "show", "job", job_id, "--oneliner").ok()
        return dict(part.split("=", 1) for part in text.split() if "=" in part)

    def reconfigure(self) -> None:
        """Have slurmctld read its configuration anew, and the workers fetch it.

        Not while a job completes: Slurm 22.05 then waits for its end for ever.
        """
        self.wait_until_none_completes()
        command = ("controller", "scontrol", "reconfigure")
        done = self.on(*command)
        # slurmctld 24.11 waits for the end of each connection, however idle, and answers nobody till then.
        if "timed out" in done.out + done.err:
            self.wait_until_slurmctld_answers()
            done = self.on(*command)
        done.ok()

    def wait_until_slurmctld_answers(self) -> None:
        """Wait until `scontrol ping` in the first controller says that one is up."""
        ping = ("scontrol", "ping")
        self.wait_until("slurmctld answers", lambda: " is UP" in self.on("controller", *ping).out)

    def wait_until_none_completes(self) -> None:
        """Wait until no job is in the state COMPLETING."""
        squeue = ("squeue", "--noheader", "--states=COMPLETING")
        self.wait_until("no job completes", lambda: not self.on("controller", *squeue).ok())

    def numbers_of(self, hostname: str, program: str) -> list[str]:
        """Numbers, in the container, of the processes that run a program; the daemon itself first.

        By their command line: a slurmd that was reconfigured has executed itself, and is called otherwise. In
        the order in which they started: a daemon that starts another program is there twice until it has.
        """
        look = f"""set -- $(tr '\\0' ' ' < $p/cmdline); n=${{1##*/}}; [ "${{n%:}}" = {program} ]"""
        started = 's=$(cat $p/stat); set -- ${s##*) }; [ "${20}" ] && echo ${20} ${p#/proc/}'
        script = f"for p in /proc/[0-9]*; do {look} && {{ {started}; }}; done 2>/dev/null | sort -n; true"
        return [line.split()[1] for line in self.on(hostname, "sh", "-c", script).ok().splitlines()]

    def restart_slurmd(self, hostname: str) -> None:
        """End slurmd with SIGKILL; node-supervise starts another, which asks for its configuration again."""
        before = self.numbers_of(hostname, "slurmd")
        assert before, f"{hostname}: no slurmd"
        self.on(hostname, "kill", "-KILL", before[0]).ok()
        self.wait_until(
            "another slurmd", lambda: self.numbers_of(hostname, "slurmd")[:1] not in ([], before[:1])
        )

    def wait_until(self, what: str, condition: Callable[[], bool], timeout_s: float = _TIMEOUT_S) -> None:
        """Wait until `condition()` holds."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() >= deadline:
                seen = "".join(self.last) or "no command ran"
                raise Unclear(
                    f"not after {timeout_s} s: {what}; {nodes_of(self.request.name)};"
                    " the last command of the test and its answer:\n"
                    f"{seen}\n{condition_of(self.request.name)}"
                )
            time.sleep(0.2)

    def cancel_jobs(self) -> None:
        """Cancel all jobs but those whose comment is KEPT."""
        lines = self.on("controller", "squeue", "--all", "--noheader", "--format=%A %k").out.splitlines()
        left = [line.split()[0] for line in lines if line.split()[1:] != [KEPT]]
        if left:
            self.on("controller", "scancel", *left)

    def mend(self, test: str) -> None:
        """Have a cluster in which the test `test` failed take jobs again, or call it spoiled."""
        try:
            self.cancel_jobs()
            self.wait_until_none_completes()
            workers = [node.name for node in self.status.nodes]
            self.on("controller", "scontrol", "update", f"node={','.join(workers)}", "state=resume")
            try:
                self._wait_until_usable(workers, _RESUMED_S)
            except Unclear:
                for worker in workers:
                    self.restart_slurmd(worker)
                self._wait_until_usable(workers, _TIMEOUT_S)
        except AssertionError:
            self.spoiled.append(test)

    def _wait_until_usable(self, workers: list[str], timeout_s: float) -> None:
        look = ("sinfo", "--noheader", "--nodes", ",".join(workers), "--states=idle,mixed", "--Format=Nodes")
        usable = f"{len(workers)}"
        self.wait_until(
            "all workers are usable", lambda: self.on("controller", *look).out.strip() == usable, timeout_s
        )
