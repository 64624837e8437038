# SPDX-License-Identifier: Apache-2.0
"""A cluster with `auth: slurm`, on each release that has it: who is who to Slurm, and who has the key."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.cluster.configuration import secrets, slurm_keys
from cellblock.cluster.facts import rotation_record, state
from cellblock.cluster.up import bring_up
from cellblock.events import Events
from cellblock.paths import PROJECT
from tests import documented
from tests.integration.conftest import default_variant, other_variants, running_cluster
from tests.integration.jail.test_jail_root import ADMINISTERING, MUNGE, NOBODY, REFUSED, SLURM, as_id
from tests.integration.jobs import fresh_path, sbatch, srun, submit
from tests.integration.local_cluster import Done, LocalCluster
from tests.integration.roles.rest_api import Rest
from tests.ports import free_port

pytestmark = pytest.mark.integration

# The releases of Debian that have it: 24.11 and 26.05.
VARIANTS = [one for one in ("debian13", "debian14") if one in (default_variant(), *other_variants())]
NODE, JAIL = "/run/slurm/sack.socket", "/run/slurm-for-jail/sack.socket"
# What a process of root's, or of SlurmUser's, that has no more rights than the jail leaves finds on the node.
_LOOK = """
    limits="--inh-caps=-all --bounding-set=-sys_ptrace,-sys_admin"
    become="setpriv --reuid UID --regid UID --clear-groups $limits"
    for p in /proc/[0-9]*; do
        case $(tr '\\0' ' ' <$p/cmdline) in *sackd*|*key-keeper*|*slurmd*) ;; *) continue;; esac
        $become sh -c "
            echo looked
            cat $p/root/run/sack-keys/slurm.jwks; head -c1 $p/mem; cat $p/environ
            nsenter --user --mount --target ${p#/proc/} id"
    done
    $become cat /run/cellblock/slurm.jwks
"""
# Connections on which nothing is said.
_HOLD = """
import socket, sys, time
held = []
for _ in range(400):
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(2)
    one.connect("/run/slurm/sack.socket")
    held.append(one)
open("/tmp/held", "w").close()
time.sleep(60)
"""


# Header of a message to sackd: the version, its length, what is asked for.
_WITHOUT_END = """
import socket, struct
one, sent = socket.socket(socket.AF_UNIX), 0
one.connect("/run/slurm/sack.socket")
one.sendall(struct.pack("!HII", 42 << 8, 0xF0000000, 64001))
try:
    while sent < 64_000_000:
        sent += one.send(bytes(65536))
except OSError:
    pass
print(sent)
"""


@pytest.fixture(scope="module", params=VARIANTS)
def slurm(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A cluster with all roles."""
    text = (
        f"auth: slurm\naccounting: {{}}\nrest: {{port: {free_port()}}}\nmetrics: {{port: {free_port()}}}\n"
        "node_sets: [{name: worker, count: 2}]\n"
    )
    with running_cluster("authslurm", request.param, text=text) as running:
        running.add_user("ada")
        yield running


def secrets_of(cluster: LocalCluster) -> Path:
    return state.folder(cluster.request.name) / "secrets"


def said(cluster: LocalCluster, host: str, socket: str, *become: str) -> Done:
    return cluster.on(host, *become, "/usr/lib/cellblock/sack-ask", socket)


def rotate(cluster: LocalCluster, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cellblock.cli", "cluster", "rotate", *words]
    done = subprocess.run(
        [*command, "--name", cluster.request.name, "--yes", "--log", "plain"],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    cluster.shells.close()
    return done


def test_daemons_use_it_and_no_munged_runs(slurm: LocalCluster) -> None:
    shown = slurm.on("controller", "scontrol", "show", "config").ok()
    assert re.search(r"^AuthType *= auth/slurm$", shown, re.MULTILINE)
    assert re.search(r"^CredType *= cred/slurm$", shown, re.MULTILINE)
    files = {path.name for path in secrets_of(slurm).rglob("*")}
    assert "slurm.jwks" in files
    assert "munge.key" not in files
    for container in slurm.status.containers:
        if container.role in ("controller", "accounting", "worker", "login"):
            host = container.name.removeprefix(f"cellblock-{slurm.request.name}-")
            assert not [line for _, line in slurm.processes(host) if "munged" in line]
            assert slurm.on(host, "ls", "/etc/munge/munge.key").status != 0


def test_users_work_as_ever(slurm: LocalCluster) -> None:
    assert srun(slurm, "ada", "-N2", "id", "-un").ok() == "ada\nada\n"
    script = "id -un; srun -N2 id -un; squeue --noheader --format=%u; sinfo --noheader --format=%R | sort -u"
    job = sbatch(slurm, "ada", script, "-N2", "-o", "batch.out")
    assert (slurm.root / "home/ada/batch.out").read_text().split() == ["ada", "ada", "ada", "ada", "main"]
    assert "interactive" in slurm.jail("salloc", "-Q", "sh", "-c", "echo interactive", user="ada").ok()
    asked = ("sacct", "-nXP", f"--jobs={job}", "--format=user,state")
    slurm.wait_until("slurmdbd knows", lambda: slurm.jail(*asked, user="ada").out.strip() == "ada|COMPLETED")


@pytest.mark.parametrize("hostname", ["login", "worker-1"])
def test_sackd_vouches_for_users_alone(slurm: LocalCluster, hostname: str) -> None:
    for uid in ("0", "1", "999", "60001", SLURM, MUNGE, "65533", "65534", "65535"):
        become = ("setpriv", f"--reuid={uid}", "--regid=100", "--clear-groups")
        assert said(slurm, hostname, JAIL, *become).ok().startswith(f"uid={NOBODY} gid=100 ")
    for gid in ("0", "42", "999", SLURM, MUNGE):
        become = ("setpriv", "--reuid=1000", f"--regid={gid}", "--clear-groups")
        assert said(slurm, hostname, JAIL, *become).ok().startswith(f"uid=1000 gid={NOBODY} ")
    for uid in ("1000", "60000", "65536", "1000000"):
        become = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
        assert said(slurm, hostname, JAIL, *become).ok().startswith(f"uid={uid} gid={uid} ")
    # The node's own, or slurmstepd would be nobody, too; and what the jail has is the other one.
    assert said(slurm, hostname, NODE).ok().startswith("uid=0 gid=0 ")
    ids = "stat -c %i"
    inside = slurm.on(hostname, "jail-enter", "--", "sh", "-c", f"{ids} {NODE}").ok()
    assert inside == slurm.on(hostname, "sh", "-c", f"{ids} {JAIL}").ok()
    assert inside != slurm.on(hostname, "sh", "-c", f"{ids} {NODE}").ok()


@pytest.mark.parametrize("uid", ["0", "1", SLURM, NOBODY])
def test_root_inside_and_system_users_submit_and_administer_nothing(slurm: LocalCluster, uid: str) -> None:
    for command in (("srun", "id"), ("sbatch", "--wrap=id"), ("salloc", "id")):
        done = as_id(slurm, uid, *command)
        assert done.status != 0
        assert done.out == ""
        assert REFUSED.format(uid=NOBODY) in done.err or "Access/permission denied" in done.err, done
    for command in ADMINISTERING:
        assert as_id(slurm, uid, *command).status != 0, command
    assert "mine" not in slurm.on("controller", "sinfo", "-h", "-o", "%R %E %T").ok()
    assert "uid=0(root)" in slurm.on("login", "srun", "-D/", "id").ok()


@pytest.mark.parametrize("uid", ["0", SLURM, NOBODY])
def test_root_inside_ends_no_users_job(slurm: LocalCluster, uid: str) -> None:
    job = submit(slurm, "ada", "sleep 60", "-o", "/dev/null")
    slurm.wait_until("it runs", lambda: slurm.job(job)["JobState"] == "RUNNING")
    for command in (
        ("scancel", job),
        ("scontrol", "requeue", job),
        ("srun", "--overlap", f"--jobid={job}", "id"),
    ):
        assert "uid=" not in as_id(slurm, uid, *command).out
    assert slurm.job(job)["JobState"] == "RUNNING"
    slurm.jail("scancel", job, user="ada").ok()
    slurm.wait_until("it is over", lambda: slurm.job(job)["JobState"] == "CANCELLED")


@pytest.mark.parametrize("hostname", ["login", "worker-1"])
@pytest.mark.parametrize("uid", ["0", SLURM])
def test_the_key_is_closed_to_root_inside_and_to_slurms_uid(
    slurm: LocalCluster, hostname: str, uid: str
) -> None:
    done = slurm.on(hostname, "sh", "-c", _LOOK.replace("UID", uid))
    looked = done.out.split().count("looked")
    # The keeper and the jail's sackd with those who start it; slurmd or the node's sackd.
    assert looked >= 4, done
    assert set(done.out.split()) == {"looked"}, done
    assert len(re.findall("Permission denied|not permitted", done.err)) >= 4 * looked + 1, done
    (key,) = secrets.read_slurm_keys(secrets_of(slurm)).keys
    assert key.kid not in done.out
    inside = "find / -xdev -name 'slurm.jwks*' -o -xdev -name 'slurm.key*'; ls /run/sack-keys /run/cellblock"
    assert slurm.on(hostname, "jail-enter", "--", "sh", "-c", f"{inside} 2>/dev/null").out == ""


def test_a_key_of_ones_own_makes_nothing(slurm: LocalCluster) -> None:
    """Root inside runs the daemons' programs as it likes; what they sign is nobody's word."""
    mine = slurm_keys.token_of_nobody(slurm_keys.new_key())
    theirs = slurm_keys.token_of_nobody(secrets.read_slurm_keys(secrets_of(slurm)).keys[0])
    unsigned = ".".join([*theirs.split(".")[:2], ""])
    for host, socket in (
        ("worker-1", NODE),
        ("worker-1", JAIL),
        ("controller", "/run/slurmctld/sack.socket"),
    ):
        ask = ("/usr/lib/cellblock/sack-ask", socket)
        assert slurm.on(host, *ask, theirs).status == 0
        assert slurm.on(host, *ask, mine).status == 1
        assert slurm.on(host, *ask, unsigned).status == 1


def test_a_user_who_holds_all_connections_keeps_nobody_out(slurm: LocalCluster) -> None:
    slurm.add_user("eve")
    script = """
        cat >/tmp/hold.py; rm -f /tmp/held
        setpriv --reuid=eve --regid=eve --clear-groups python3 /tmp/hold.py & holds=$!
        for i in $(seq 100); do [ -e /tmp/held ] && break; sleep 0.1; done
        sleep 1.5
        setpriv --reuid=ada --regid=ada --clear-groups timeout 20 squeue; status=$?
        kill -0 $holds && [ -e /tmp/held ] || exit 9
        kill $holds
        exit $status
    """
    slurm.jail("sh", "-c", script, stdin=_HOLD).ok()


def test_of_a_message_without_end_little_is_kept(slurm: LocalCluster) -> None:
    """sackd has in memory what has come of a message that says that it is of four gigabytes."""
    slurm.add_user("eve")
    done = slurm.jail("python3", "-", user="eve", stdin=_WITHOUT_END)
    assert int(done.ok()) < 8_000_000


@pytest.mark.parametrize("signal", ["KILL", "INT"])
def test_the_jails_sackd_is_started_again(slurm: LocalCluster, signal: str) -> None:
    # Its program cannot be asked for: that takes a right that the container's root has not.
    named = (
        "case $(tr '\\0' ' ' <$p/cmdline) in /usr/libexec/cellblock/for-jail/sackd*) echo ${p#/proc/};; esac"
    )
    look = f"for p in /proc/[0-9]*; do {named}; done 2>/dev/null"
    before = slurm.on("worker-1", "sh", "-c", look).ok().split()
    assert len(before) == 1
    slurm.on("worker-1", "kill", f"-{signal}", before[0])
    slurm.wait_until(
        "another one", lambda: slurm.on("worker-1", "sh", "-c", look).ok().split() not in ([], before)
    )
    slurm.wait_until("it answers", lambda: said(slurm, "worker-1", JAIL).out.startswith(f"uid={NOBODY} "))


def test_the_rest_api_and_metrics(slurm: LocalCluster) -> None:
    rest = Rest(slurm)
    assert not rest.ask("jobs", rest.token()).refused
    assert rest.ask("jobs", "").refused


def test_a_new_key_while_a_job_runs(slurm: LocalCluster) -> None:
    (old,) = secrets.read_slurm_keys(secrets_of(slurm)).keys
    go = fresh_path(slurm, "ada", "key-is-new")
    job = submit(slurm, "ada", f"until [ -e {go.name} ]; do sleep 1; done; srun id -un", "-o", "over.out")
    slurm.wait_until("it runs", lambda: slurm.job(job)["JobState"] == "RUNNING")
    done = rotate(slurm, "slurm")
    assert done.returncode == 0, done.stdout + done.stderr
    (new,) = secrets.read_slurm_keys(secrets_of(slurm)).keys
    texts = [path.read_bytes() for path in secrets_of(slurm).rglob("*") if path.is_file()]
    assert not [text for text in texts if old.kid.encode() in text]
    token = slurm_keys.token_of_nobody(old)
    for host, socket in (
        ("controller", "/run/slurmctld/sack.socket"),
        ("accounting", "/run/slurmdbd/sack.socket"),
        *((host, socket) for host in ("worker-1", "worker-2", "login") for socket in (NODE, JAIL)),
    ):
        assert said(slurm, host, socket).ok().strip().endswith(f" kid={new.kid}")
        assert slurm.on(host, "/usr/lib/cellblock/sack-ask", socket, token).status == 1
    assert slurm.job(job)["JobState"] == "RUNNING"
    assert srun(slurm, "ada", "-N2", "id", "-un").ok() == "ada\nada\n"
    go.touch()
    slurm.wait_until("it is over", lambda: slurm.job(job)["JobState"] == "COMPLETED")
    assert (slurm.job(job)["Restarts"], (slurm.root / "home/ada/over.out").read_text()) == ("0", "ada\n")


@pytest.mark.others_at_night
@pytest.mark.parametrize("mender", ["again", "up"])
@pytest.mark.parametrize("phase", ["two keys", "renewed"])
def test_what_was_interrupted_is_ended(slurm: LocalCluster, phase: str, mender: str) -> None:
    """As kill -9 leaves it: the files say how far it is."""
    (old,) = secrets.read_slurm_keys(secrets_of(slurm)).keys
    new = slurm_keys.new_key()
    before = rotation_record.RotationRecord(slurm.request.name, ("slurm",), ("slurm",), "begun")
    rotation_record.write(before)
    secrets.write_slurm_keys(secrets_of(slurm), slurm_keys.KeySet((old, new), old.kid))
    if phase == "renewed":
        assert rotate(slurm, "slurm").returncode == 0
        (new,) = secrets.read_slurm_keys(secrets_of(slurm)).keys
        rotation_record.write(
            rotation_record.RotationRecord(slurm.request.name, ("slurm",), ("slurm",), "renewed")
        )
    if mender == "again":
        done = rotate(slurm, "slurm")
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        bring_up(slurm.request, Events())
        slurm.shells.close()
    assert rotation_record.read(slurm.request.name) is None
    assert [key.kid for key in secrets.read_slurm_keys(secrets_of(slurm)).keys] == [new.kid]
    assert said(slurm, "worker-1", NODE).ok().strip().endswith(f" kid={new.kid}")
    assert srun(slurm, "ada", "-N2", "id", "-un").ok() == "ada\nada\n"


@pytest.mark.others_at_night
def test_no_rotation_of_munges_key(slurm: LocalCluster) -> None:
    done = rotate(slurm, "munge")
    assert done.returncode == 1
    assert "has `auth: slurm`, and so no key of munge's" in done.stderr


@pytest.mark.others_at_night
def test_another_auth_is_refused_while_it_runs_and_says_what_it_does(
    slurm: LocalCluster, tmp_path: Path
) -> None:
    assert slurm.request.file
    other = tmp_path / "cluster.yaml"
    other.write_text(slurm.request.file.read_text().replace("auth: slurm", "auth: munge"))
    command = [sys.executable, "-m", "cellblock.cli"]
    options = ["--cluster", str(other), "--name", slurm.request.name, "--variant", slurm.status.variant]
    options += ["--ssh-port", str(slurm.status.ssh_port), "--log", "plain"]
    up = subprocess.run([*command, "up", *options], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert up.returncode == 1
    assert "auth: munge instead of slurm" in up.stderr
    assert "daemons of the old `auth` and of the new one are strangers" in up.stderr
    assert "--wait 0" in up.stderr
    assert srun(slurm, "ada", "-N2", "id", "-un").ok() == "ada\nada\n"


def test_as_operator_root_inside_is_root_to_slurm() -> None:
    text = "auth: slurm\nnode_sets: [{name: worker, count: 2}]\n"
    with running_cluster("authoperator", VARIANTS[0] if VARIANTS else None, "operator", text) as running:
        assert "uid=0(root)" in running.jail("srun", "id").ok()
        running.jail("scontrol", "update", "nodename=worker-1", "comment=mine").ok()
        for uid in ("1", SLURM, MUNGE):
            assert REFUSED.format(uid=uid) in as_id(running, uid, "srun", "-D/", "id").err


@pytest.mark.others_at_night
def test_the_key_by_the_page(slurm: LocalCluster, tmp_path: Path) -> None:
    for line in documented.lines_for("cluster-file.md", "test_the_key_by_the_page"):
        documented.type_line(f"{line} --yes --name {slurm.request.name}", tmp_path)
        slurm.shells.close()
    assert srun(slurm, "ada", "-N2", "id", "-un").ok() == "ada\nada\n"
