# SPDX-License-Identifier: Apache-2.0
"""The quick checks of a node: each fails for a real fault; what keeps it from looking is no failure."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from cellblock.cluster.definition.health_part import own_checks
from tests.spank_jail.node_health import Node
from tests.spank_jail.test_c_units import build, make, tools
from tests.spank_jail.waiting import wait_until

__all__ = ["build", "tools"]  # fixtures

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as the checks do")

_PASSED, _FAILED, _COULD_NOT_RUN = 0, 1, 2
# A process that hangs in the kernel: the parent of one that shares its memory waits for it uninterruptibly.
_HANGS = "python3 -c 'import ctypes; ctypes.CDLL(None).vfork() or __import__(\"time\").sleep(60)' &"
# A PID namespace: what is started there ends with the check.
_ALONE = "--pid --fork --mount-proc"


@pytest.fixture
def node(build: Path, tmp_path: Path) -> Node:
    done = make(build, "node")
    assert done.returncode == 0, done.stdout + done.stderr
    return Node(tmp_path, build).make()


@pytest.fixture
def volume(node: Node) -> str:
    """A script that mounts a volume with a jail; the check's arguments are the other one."""
    at = node.base / "volume"
    at.mkdir()
    (node.base / "release").write_text("24.11\n")
    return f"""
        mount -t tmpfs tmpfs {at}; mkdir -p {at}/root/etc/cellblock {at}/.cellblock; : > {at}/root/etc/passwd
        echo SLURM_RELEASE=24.11 > {at}/root/etc/cellblock/jail-release"""


def arguments(node: Node) -> tuple[str, ...]:
    return f"volume={node.base}/volume", f"release={node.base}/release", "answer=1"


def test_the_jail(node: Node, volume: str) -> None:
    jail = f"{node.base}/volume/root"
    ask = arguments(node)
    assert node.check("jail", *ask, before=volume) == (_PASSED, "")
    assert node.check("jail", *ask) == (
        _FAILED,
        f"the jail's volume is not mounted at {node.base}/volume",
    )
    status, said = node.check("jail", *ask, before=f"{volume}; rm {jail}/etc/passwd")
    assert (status, "No such file" in said) == (_FAILED, True)
    other = f"{volume}; echo SLURM_RELEASE=22.05 > {jail}/etc/cellblock/jail-release"
    assert node.check("jail", *ask, before=other) == (
        _FAILED,
        "the jail is of Slurm 22.05, this node of 24.11",
    )


def test_many_looks_at_the_jail_at_once(node: Node, volume: str) -> None:
    """a turn and the prologs of jobs"""
    ask = f"{node.base}/checks/jail {' '.join(arguments(node))} || : > {node.base}/bad"
    at_once = f"{volume}; for i in 1 2 3 4 5 6 7 8; do ({ask}) & done; wait"
    assert node.check("jail", *arguments(node), before=at_once) == (_PASSED, "")
    assert not (node.base / "bad").exists()


@pytest.mark.parametrize(
    "trick",
    ["rm $f; mkfifo $f", "ln -sf /proc/self/root/etc/shadow $f", "rm $f; mkdir $f", "yes | head -c 9M > $f"],
)
def test_what_users_make_of_the_jails_release_does_not_hang_the_check(
    node: Node, volume: str, trick: str
) -> None:
    file = f"f={node.base}/volume/root/etc/cellblock/jail-release"
    status, said = node.check("jail", *arguments(node), before=f"{volume}; {file}; {trick}")
    assert status == _FAILED
    assert "does not answer" not in said


@pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="needs /dev/fuse")
def test_a_volume_that_does_not_answer(node: Node, volume: str) -> None:
    """The file system's server is stopped. The next look is not in vain, either."""
    tree = node.base / "tree"
    (tree / "root/etc").mkdir(parents=True)
    image = node.base / "image"
    subprocess.run(["mksquashfs", tree, image, "-quiet", "-no-progress"], check=True, capture_output=True)
    served = f"until mountpoint -q {node.base}/volume; do sleep 0.1; done; kill -STOP $!"
    fuse = f"squashfuse -f {image} {node.base}/volume & {served}"
    # With the namespace its processes end.
    assert node.check("jail", *arguments(node), before=fuse, namespaces=_ALONE) == (
        _FAILED,
        "the jail does not answer for 1 s",
    )
    again = f"{fuse}; {node.base}/checks/jail {' '.join(arguments(node))} >/dev/null || true"
    status, said = node.check("jail", *arguments(node), before=again, namespaces=_ALONE)
    assert status == _FAILED
    assert said in (
        "the jail does not answer for 1 s",
        "the jail does not answer: a look at it of before still hangs",
    )


def test_the_volume_is_the_one_that_others_have(node: Node) -> None:
    at = node.base / "kept"
    (at / ".cellblock").mkdir(parents=True)
    ask = (f"volume={at}", "most=60")
    assert node.check("shared", *ask) == (_PASSED, "")
    assert node.check("shared", *ask, node="node-2") == (_PASSED, "")
    (at / ".cellblock/health/node-1").write_text(f"{int(time.time()) - 3600}\n")
    status, said = node.check("shared", *ask, node="node-2")
    assert (status, said.startswith("no other node has written")) == (_FAILED, True)
    # Nothing of the volume's own is there: it is none.
    assert node.check("shared", f"volume={node.base}/none")[0] == _COULD_NOT_RUN


def test_places_that_are_read_only_or_full(node: Node) -> None:
    place = node.base / "place"
    place.mkdir()
    ask = f"places={place}"
    mount = f"mount -t tmpfs -o size=1m,nr_inodes=100 tmpfs {place}; "
    assert node.check("writable", ask, before=mount) == (_PASSED, "")
    assert node.check("writable", ask, before=f"{mount} mount -o remount,ro {place}") == (
        _FAILED,
        f"{place} is read-only",
    )
    full = f"{mount} head -c 2M /dev/zero > {place}/fill || true"
    assert node.check("disk", ask, before=mount) == (_PASSED, "")
    assert node.check("disk", ask, before=full) == (_FAILED, f"{place} is 100 % full")
    assert node.check("disk", ask, "full=101", before=full)[0] == _PASSED
    files = f"{mount} i=0; while [ $i -lt 97 ]; do : > {place}/$i; i=$((i + 1)); done"
    status, said = node.check("disk", ask, before=files)
    assert (status, "of its inodes" in said) == (_FAILED, True)
    assert node.check("disk", "places=/none")[0] == _COULD_NOT_RUN


def test_memory(node: Node) -> None:
    assert node.check("memory", "least=0") == (_PASSED, "")
    # All of it is not there on any machine.
    assert node.check("memory", "least=100")[0] == _FAILED
    eaten = node.base / "meminfo"
    eaten.write_text("MemTotal:       16384000 kB\nMemFree: 1 kB\nMemAvailable:     163840 kB\n")
    assert node.check("memory", f"meminfo={eaten}") == (
        _FAILED,
        "no job runs, and 160 MiB of 16000 MiB of memory are left, less than 2 %",
    )
    # A job may take all that there is.
    sockets = node.base / "unix"
    sockets.write_text("0000: 00000002 0 0001 01 12345 /var/spool/slurmd/node-1_17.0\n")
    assert node.check("memory", f"meminfo={eaten}", f"sockets={sockets}")[0] == _PASSED
    assert node.check("memory", f"meminfo={eaten}", "sockets=/none")[0] == _COULD_NOT_RUN
    eaten.write_text("nonsense\n")
    assert node.check("memory", f"meminfo={eaten}")[0] == _COULD_NOT_RUN
    assert node.check("memory", "meminfo=/none")[0] == _COULD_NOT_RUN
    assert node.check("memory", "least=many")[0] == _COULD_NOT_RUN


def test_shared_memory_that_jobs_left(node: Node) -> None:
    place = node.base / "shm"
    place.mkdir()
    sockets = node.base / "unix"
    sockets.write_text("")
    left = f"mount -t tmpfs tmpfs {place}; head -c 1M /dev/zero > {place}/left"
    ask = (f"place={place}", f"sockets={sockets}", "most=0")
    assert node.check("shm", *ask, before=left, namespaces="--ipc")[0] == _FAILED
    assert node.check("shm", *ask, namespaces="--ipc", before=f"mount -t tmpfs tmpfs {place}")[0] == _PASSED
    # While a job runs, it is the job's.
    sockets.write_text("0000: 00000002 0 0001 01 12345 /var/spool/slurmd/node-1_17.0\n")
    assert node.check("shm", *ask, before=left)[0] == _PASSED
    assert node.check("shm", f"place={place}", "sockets=/none")[0] == _COULD_NOT_RUN


def test_what_the_node_told_slurm(node: Node) -> None:
    facts = node.base / "facts"
    ask = f"facts={facts}"
    assert node.check("resources", ask)[0] == _COULD_NOT_RUN
    facts.write_text("node=RealMemory=1 CPUs=1 Feature=x\n")
    assert node.check("resources", ask) == (_PASSED, "")
    facts.write_text("node=RealMemory=999999999 CPUs=1\n")
    assert node.check("resources", ask)[0] == _FAILED
    facts.write_text("node=RealMemory=1 CPUs=100000\n")
    status, said = node.check("resources", ask)
    assert (status, "100000 processors" in said) == (_FAILED, True)


def test_cgroup_controllers(node: Node) -> None:
    facts = node.base / "facts"
    assert node.check("cgroup", f"facts={facts}")[0] == _COULD_NOT_RUN
    facts.write_text("cgroup=disabled\n")
    assert node.check("cgroup", f"facts={facts}", "need=none-such") == (_PASSED, "")
    facts.write_text("cgroup=v2\n")
    assert node.check("cgroup", f"facts={facts}", "need=none-such")[0] == _FAILED
    # Nothing is mounted there.
    assert node.check("cgroup", f"facts={facts}", "root=/none")[0] == _FAILED


@pytest.mark.parametrize(("off", "status"), [(0, _PASSED), (-3600, _FAILED), (3600, _FAILED)])
def test_the_clock(node: Node, off: int, status: int) -> None:
    source = node.base / "config"
    source.write_text(f"Configuration data as of {int(time.time()) + off}\nAccountingStorageType = none\n")
    answer, said = node.check("clock", f"source={source}")
    assert answer == status
    assert not off or ("behind" if off > 0 else "ahead of") in said


@pytest.mark.parametrize("text", ["", "Configuration data as of 2026-11-26T12:00:00\n", "nonsense"])
def test_a_clock_that_is_not_told(node: Node, text: str) -> None:
    source = node.base / "config"
    source.write_text(text)
    assert node.check("clock", f"source={source}")[0] == _COULD_NOT_RUN


def test_names(node: Node) -> None:
    facts = node.base / "facts"
    facts.write_text("controller=localhost:6817\n")
    ask = f"facts={facts}"
    assert node.check("dns", ask) == (_PASSED, "")
    status, said = node.check("dns", ask, "names=none-such.invalid", namespaces="--net")
    assert (status, "none-such.invalid is not resolved" in said) == (_FAILED, True)
    assert node.check("dns", "facts=/none")[0] == _COULD_NOT_RUN
    # A name server that is silent.
    silent = (
        f"ip link set lo up; echo nameserver 127.0.0.2 > {facts}.r; mount --bind {facts}.r /etc/resolv.conf"
    )
    listen = 'import socket, time; s = socket.socket(2, 2); s.bind(("127.0.0.2", 53)); time.sleep(9)'
    hears = f"python3 -c '{listen}' &"
    started = time.monotonic()
    status, said = node.check(
        "dns",
        "facts=/none",
        "names=a.example",
        "answer=1",
        before=f"{silent}; {hears} sleep 0.5",
        namespaces=f"--net {_ALONE}",
    )
    assert (status, said) == (_FAILED, "name servers do not answer")
    assert time.monotonic() - started < 8


def test_who_says_who_asks_is_not_known(node: Node) -> None:
    """munged stopped is of the cluster's tests: this machine has none"""
    facts = node.base / "facts"
    assert node.check("auth", f"facts={facts}")[0] == _COULD_NOT_RUN
    facts.write_text("auth=slurm\n")
    assert node.check("auth", f"facts={facts}", f"socket={node.base}/none")[0] == _COULD_NOT_RUN


def test_network_devices(node: Node) -> None:
    """A pair of devices is up; then the other end goes down, and then the device is gone."""
    sys = "mount -t sysfs sysfs /sys; ip link set lo up; "
    pair = f"{sys} ip link add a0 type veth peer name b0; ip link set a0 up; "
    assert node.check("network", before=f"{pair} ip link set b0 up; sleep 0.2", namespaces="--net") == (
        _PASSED,
        "",
    )
    assert node.check("network", before=f"{pair} sleep 0.2", namespaces="--net") == (
        _FAILED,
        "network device a0 is lowerlayerdown",
    )
    assert node.check("network", before=sys, namespaces="--net") == (_FAILED, "network device a0 is gone")
    assert node.check("network", "folder=/none")[0] == _COULD_NOT_RUN


def test_errors_of_a_network_device(node: Node) -> None:
    device = node.base / "net/ib0"
    (device / "statistics").mkdir(parents=True)
    texts = {
        "flags": "0x1003",
        "operstate": "up",
        "statistics/rx_packets": "100",
        "statistics/rx_errors": "0",
    }
    for name, text in texts.items():
        (device / name).write_text(f"{text}\n")
    ask = f"folder={node.base}/net"
    assert node.check("network", ask) == (_PASSED, "")
    (device / "statistics/rx_errors").write_text("500\n")
    (device / "statistics/rx_packets").write_text("1100\n")
    assert node.check("network", ask) == (_FAILED, "network device ib0 had 500 errors in 1000 packets")
    assert node.check("network", ask) == (_PASSED, "")


def test_processes_of_the_node_that_hang(node: Node) -> None:
    assert node.check("stuck", "apart=0", namespaces=_ALONE) == (_PASSED, "")
    # At the first look it may be on its way; one that is there at the second hangs.
    look = f"{_HANGS} sleep 1; {node.base}/checks/stuck apart=0 || true; "
    assert node.check("stuck", before=look, namespaces=_ALONE)[0] == _PASSED
    status, said = node.check("stuck", "apart=0", before=look, namespaces=_ALONE)
    assert (status, said) == (_FAILED, "1 processes of the node have hung in the kernel since the last look")
    # A user's, or one in a job's mount namespace, is no fault of the node's.
    for how in ("setpriv --reuid=4242 --clear-groups", "unshare --mount"):
        theirs = look.replace("python3", f"{how} python3", 1)
        assert node.check("stuck", "apart=0", before=theirs, namespaces=_ALONE) == (_PASSED, "")
    assert node.check("stuck", "proc=/none", "apart=0")[0] == _COULD_NOT_RUN


def test_zombies_of_daemons(node: Node) -> None:
    daemon = (
        "python3 -c 'import os, time; [os.fork() or os._exit(0) for _ in range(5)]; time.sleep(60)' & sleep 1"
    )
    assert node.check("zombies", "most=5", namespaces=_ALONE)[0] == _PASSED
    assert node.check("zombies", "most=5", before=daemon, namespaces=_ALONE) == (
        _FAILED,
        "5 zombies that a daemon of the node does not wait for",
    )
    users = f"setpriv --reuid=4242 --clear-groups {daemon}"
    assert node.check("zombies", "most=5", before=users, namespaces=_ALONE)[0] == _PASSED
    # A job's, which its user traces and keeps dead: its parent is the init of its namespace, root's.
    jobs = daemon.replace("python3", "unshare --pid --fork python3")
    assert node.check("zombies", "most=5", before=jobs, namespaces=_ALONE)[0] == _PASSED
    assert node.check("zombies", "proc=/none")[0] == _COULD_NOT_RUN


def test_what_jobs_left(node: Node) -> None:
    sockets = node.base / "unix"
    sockets.write_text("")
    left = "setpriv --reuid=4242 --clear-groups sleep 60 & sleep 0.3; "
    twice = f"{left} {node.base}/checks/leftovers apart=0 sockets={sockets} bcast=/none || true; "
    ask = (f"sockets={sockets}", "bcast=/none", "apart=0")
    assert node.check("leftovers", *ask, before=left, namespaces=_ALONE) == (_PASSED, "")
    status, said = node.check("leftovers", *ask, before=twice, namespaces=_ALONE)
    assert (status, said) == (_FAILED, "no job runs, and 1 processes of users are left since the last look")
    # The images' own users, as munged's.
    daemon = twice.replace("4242", "65520")
    assert node.check("leftovers", *ask, before=daemon, namespaces=_ALONE) == (_PASSED, "")
    sockets.write_text("0000: 00000002 0 0001 01 12345 /var/spool/slurmd/node-1_17.4294967291\n")
    assert node.check("leftovers", *ask, before=twice, namespaces=_ALONE) == (_PASSED, "")
    assert node.check("leftovers", "sockets=/none")[0] == _COULD_NOT_RUN


def test_the_checks_together_are_quick(node: Node) -> None:
    """the whole image's table, on a busy machine: far more than what `bench health` measures"""
    table = Path("images/worker/files/usr/lib/cellblock/health/checks.conf")
    node.table((Path(__file__).parents[2] / table).read_text())
    node.configure()
    node.health()
    before = os.times()
    node.health()
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent < 0.5
    wait_until(lambda: len(node.shown()) == len(own_checks()))
