# SPDX-License-Identifier: Apache-2.0
"""New secrets for a cluster that runs: what the old ones opened is closed, and jobs go on."""

from __future__ import annotations

import base64
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cellblock.cluster import status
from cellblock.cluster.facts import rotation_record, state
from cellblock.cluster.facts.rotation_record import RotationRecord
from cellblock.cluster.up import bring_up
from cellblock.events import Events, Message
from tests import documented
from tests.integration.cluster.typed_command import interrupt_command, type_command
from tests.integration.conftest import default_variant, running_cluster
from tests.integration.jobs import accounted_state
from tests.integration.local_cluster import podman
from tests.integration.roles.rest_api import USER, Rest
from tests.ports import free_port

pytestmark = pytest.mark.integration

# A munged with a key of ours, and a credential by it: does the container's own munged take it?
_TRY_KEY = """
    set -eu
    rm -rf /tmp/tried
    install -d -o munge -g munge -m 0755 /tmp/tried
    base64 -d >/tmp/tried/key
    chown munge:munge /tmp/tried/key
    chmod 0400 /tmp/tried/key
    cd /tmp/tried
    setpriv --reuid=munge --regid=munge --clear-groups munged --force --key-file=/tmp/tried/key \
        --socket=/tmp/tried/socket --pid-file=/tmp/tried/pid --log-file=/tmp/tried/log \
        --seed-file=/tmp/tried/seed
    munge --socket=/tmp/tried/socket --no-input >credential
    munged --socket=/tmp/tried/socket --stop >/dev/null
    unmunge <credential || status=$?
    rm -rf /tmp/tried
    exit ${status:-0}
"""
_OPTIONS = ("--yes", "--log", "plain")
_SSH = ("-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-F", "none")
# What `--log plain` says when a rotation is in a step, and who ends what is killed there.
MOMENTS = (
    ("tokens", "start controller anew", "again"),
    ("database", "start database anew", "up"),
    ("hosts", "start login anew", "again"),
    ("munge", "wait for jobs", "again"),
    ("munge", "stop all that have", "up"),
    ("munge", "start them with the new key", "again"),
    ("munge", "wait for Slurm", "up"),
)


@pytest.fixture(scope="module")
def rest() -> Iterator[Rest]:
    """A cluster with all secrets that there are."""
    file = (
        f"accounting: {{}}\nrest: {{port: {free_port()}}}\nmetrics: {{port: {free_port()}}}\n"
        "node_sets: [{name: worker, count: 2}]\n"
    )
    with running_cluster("rotation", default_variant(), text=file) as running:
        yield Rest(running)


def secrets_of(rest: Rest) -> Path:
    return state.folder(rest.name) / "secrets"


def rotate(rest: Rest, *words: str) -> str:
    """`build.py cluster rotate`; what it prints."""
    done = type_command(rest.name, "cluster rotate", *words, *_OPTIONS, timeout_s=300)
    # The shells that the tests have in containers ended with these.
    rest.cluster.shells.close()
    assert done.returncode == 0, done.stdout + done.stderr
    assert rotation_record.read(rest.name) is None
    return done.stdout + done.stderr


def rotate_killed(rest: Rest, moment: str, *words: str) -> None:
    """The same, killed as soon as it says `moment`."""
    status, said = interrupt_command(rest.name, "cluster rotate", *words, *_OPTIONS, moment=moment)
    rest.cluster.shells.close()
    assert status == -signal.SIGKILL, said


def submit(rest: Rest, script: str, *options: str) -> str:
    command = ("sbatch", "--parsable", "-D/tmp", "-o/dev/null", *options, "--wrap", script)
    return rest.cluster.jail(*command, user=USER).ok().strip()


@pytest.fixture
def job(rest: Rest) -> Iterator[str]:
    """A job that runs, and has never been anything else when the test is over."""
    number = submit(rest, "sleep 900")
    rest.cluster.wait_until("it runs", lambda: rest.cluster.job(number)["JobState"] == "RUNNING")
    began = rest.cluster.job(number)["StartTime"]
    yield number
    after = rest.cluster.job(number)
    rest.cluster.on("controller", "scancel", number).ok()
    rest.cluster.wait_until("it ends", lambda: rest.cluster.job(number)["JobState"] == "CANCELLED")
    assert (after["JobState"], after["StartTime"], after["Restarts"]) == ("RUNNING", began, "0")
    assert works(rest)


def works(rest: Rest) -> bool:
    """A step over both nodes by a user, and what slurmdbd knows of it."""
    command = ("srun", "-N2", "-D/", "sh", "-c", "echo $SLURM_JOB_ID")
    number = rest.cluster.jail(*command, user=USER).ok().split()[0]
    rest.cluster.wait_until("slurmdbd knows", lambda: accounted_state(rest.cluster, number) == "COMPLETED")
    return status(rest.name).ready


def gone(rest: Rest, *old: bytes) -> bool:
    """Whether no file among the cluster's secrets has any of these in it."""
    texts = [path.read_bytes() for path in secrets_of(rest).rglob("*") if path.is_file()]
    return not any(one in text for one in old for text in texts)


def test_tokens(rest: Rest, job: str) -> None:
    old, key = rest.token(), (secrets_of(rest) / "controller/jwt_hs256.key").read_bytes()
    assert not rest.ask("jobs", old).refused
    rotate(rest, "tokens")
    assert rest.ask("jobs", old).refused
    assert rest.ask(f"/slurmdb/{rest.version}/jobs", old).refused
    assert not rest.ask("jobs", rest.token()).refused
    assert gone(rest, key)


def test_the_password_of_the_database(rest: Rest, job: str) -> None:
    file = secrets_of(rest) / "database/database-password"

    def lets_in(password: str) -> bool:
        client = ("mariadb", "-hdatabase", "-uslurm", "-e", "SELECT 1", "slurm_acct_db")
        done = rest.cluster.on("accounting", "env", f"MYSQL_PWD={password}", *client)
        assert done.status == 0 or "Access denied" in done.err, done
        return done.status == 0

    old = file.read_text()
    assert lets_in(old)
    rotate(rest, "database")
    assert not lets_in(old)
    assert lets_in(file.read_text())
    assert gone(rest, old.encode())


def ssh(rest: Rest, key: Path, known: Path, *command: str) -> list[str]:
    hosts = ("-o", f"UserKnownHostsFile={known}", "-o", "StrictHostKeyChecking=yes")
    port = str(rest.cluster.status.ssh_port)
    return ["ssh", *_SSH, *hosts, "-i", str(key), "-p", port, "root@127.0.0.1", *command]


def opens(command: Sequence[str]) -> tuple[bool, str]:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode == 0, done.stderr


def known_hosts(rest: Rest, file: Path) -> Path:
    """What the login node shows to who does not know it yet."""
    scan = ["ssh-keyscan", "-p", str(rest.cluster.status.ssh_port), "127.0.0.1"]
    file.write_text(subprocess.run(scan, capture_output=True, text=True, check=True).stdout)
    return file


def kept(key: Path, folder: Path) -> Path:
    """A copy of a private key, as somebody has it who took it."""
    copy = folder / "old"
    copy.touch(mode=0o600)
    copy.write_bytes(key.read_bytes())
    return copy


def test_the_key_that_opens_a_session(rest: Rest, job: str, tmp_path: Path) -> None:
    key, known = secrets_of(rest) / "ssh/id_ed25519", known_hosts(rest, tmp_path / "known")
    old = kept(key, tmp_path)
    assert opens(ssh(rest, old, known, "true"))[0]
    with subprocess.Popen(
        ssh(rest, old, known, "read line; echo heard $line; read line; echo heard $line"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as session:
        assert session.stdin is not None
        assert session.stdout is not None
        session.stdin.write("before\n")
        session.stdin.flush()
        assert session.stdout.readline() == "heard before\n"
        said = rotate(rest, "logins")
        session.stdin.write("after\n")
        session.stdin.close()
        assert session.stdout.readline() == "heard after\n"
    assert str(key) in said
    lets_in, why = opens(ssh(rest, old, known, "true"))
    assert not lets_in
    assert "Permission denied" in why
    assert opens(ssh(rest, key, known, "true")) == (True, "")
    assert gone(rest, old.read_bytes())


def test_the_host_keys_of_the_login_node(rest: Rest, job: str, tmp_path: Path) -> None:
    key, known = secrets_of(rest) / "ssh/id_ed25519", known_hosts(rest, tmp_path / "known")
    private = [path.read_bytes() for path in (secrets_of(rest) / "login").glob("ssh_host_*_key")]
    assert opens(ssh(rest, key, known, "true"))[0]
    said = rotate(rest, "hosts")
    lets_in, why = opens(ssh(rest, key, known, "true"))
    assert not lets_in
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in why
    assert opens(ssh(rest, key, known_hosts(rest, tmp_path / "new"), "true"))[0]
    # The line that it prints, typed.
    (line,) = [line.strip() for line in said.splitlines() if "ssh-keygen -R" in line]
    documented.type_line(f"{line} -f {known}", tmp_path)
    assert opens(ssh(rest, key, known, "true"))[1].strip().endswith("Host key verification failed.")
    assert "[127.0.0.1]" not in known.read_text()
    assert len(private) == 2
    assert gone(rest, *private)


def vouches(rest: Rest, host: str, key: bytes) -> bool:
    """Whether munged of a container takes a credential that was made with `key`."""
    done = rest.cluster.on(host, "sh", "-c", _TRY_KEY, stdin=base64.b64encode(key).decode())
    assert done.status == 0 or "Invalid credential" in done.err, done
    return done.status == 0


def test_munges_key_after_the_jobs_have_ended(rest: Rest) -> None:
    file = secrets_of(rest) / "munge/munge.key"
    old = file.read_bytes()
    assert vouches(rest, "controller", old)
    runs = submit(rest, "sleep 15")
    waits = submit(rest, "true", "--begin=now+1hour")
    rest.cluster.wait_until("it runs", lambda: rest.cluster.job(runs)["JobState"] == "RUNNING")
    # Of another key than that of these nodes' daemons nothing is seen until the job is over.
    refused = type_command(rest.name, "cluster rotate", "munge", *_OPTIONS, "--wait", "1s", timeout_s=300)
    assert refused.returncode == 1
    assert f"jobs {runs} still run on" in refused.stderr
    assert f"cluster rotate munge --name {rest.name}" in refused.stderr
    assert vouches(rest, "controller", old)
    assert "drain" not in rest.cluster.on("controller", "sinfo", "--noheader", "--format=%T").ok()
    rotate(rest, "munge")
    assert rest.cluster.job(runs)["JobState"] == "COMPLETED"
    assert rest.cluster.job(runs)["Restarts"] == "0"
    # Where slurmctld has endpoints of its own, the exporter asks those, without a key.
    asks = ("metrics",) if rest.cluster.status.release < "25.11" else ()
    for host in ("controller", "accounting", *asks):
        assert (
            rest.cluster.on(host, "base64", "-w0", "/etc/munge/munge.key").ok()
            == base64.b64encode(file.read_bytes()).decode()
        )
    assert not vouches(rest, "controller", old)
    assert vouches(rest, "controller", file.read_bytes())
    assert gone(rest, old)
    # It waited all the time, and runs when its time has come.
    assert rest.cluster.job(waits)["JobState"] == "PENDING"
    rest.cluster.on("controller", "scontrol", "update", f"jobid={waits}", "starttime=now").ok()
    rest.cluster.wait_until("it is over", lambda: rest.cluster.job(waits)["JobState"] == "COMPLETED")
    assert works(rest)


@pytest.mark.parametrize(("secret", "moment", "mender"), MOMENTS)
def test_what_was_killed_is_ended(rest: Rest, secret: str, moment: str, mender: str) -> None:
    rotate_killed(rest, moment, secret)
    record = rotation_record.read(rest.name)
    assert record is not None
    assert record.left == (secret,)
    shown = type_command(rest.name, "status", timeout_s=60)
    assert shown.returncode == 1
    assert f"a rotation of secrets is not over: `python3 {record.command}` goes on" in shown.stdout
    if mender == "again":
        rotate(rest, secret)
    else:
        bring_up(rest.cluster.request, Events())
    rest.cluster.shells.close()
    assert rotation_record.read(rest.name) is None
    assert not bring_up(rest.cluster.request, Events()).status.changed
    assert not rest.ask("jobs", rest.token()).refused
    assert works(rest)


def test_what_a_power_cut_ended_is_ended_by_up(rest: Rest) -> None:
    password = secrets_of(rest) / "database/database-password"
    old = password.read_text()
    rotation_record.write(RotationRecord(rest.name, ("database", "munge"), ("database", "munge"), "begun"))
    podman("stop", "--time=5", *(one.name for one in rest.cluster.status.containers))
    rest.cluster.shells.close()
    events, said = Events(), list[str]()
    events.subscribe(lambda event: said.append(event.text) if isinstance(event, Message) else None)
    bring_up(rest.cluster.request, events)
    assert rotation_record.read(rest.name) is None
    assert password.read_text() != old
    # What had not begun is the operator's to ask for again.
    assert any(f"`build.py cluster rotate munge --name {rest.name}`" in text for text in said), said
    assert works(rest)


def test_what_the_page_says(rest: Rest, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in secrets_of(rest).rglob("*") if path.is_file()}
    for line in documented.lines_for("cluster-file.md", "test_what_the_page_says"):
        documented.type_line(f"{line} --yes --name {rest.name}", tmp_path)
        rest.cluster.shells.close()
    after = {path: path.read_bytes() for path in before}
    assert not [path for path in before if before[path] == after[path]]
    assert works(rest)
