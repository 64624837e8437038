# SPDX-License-Identifier: Apache-2.0
"""The health of nodes in a real cluster: drains and their end, jobs, first registrations, the budget."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.cluster.engine.container_specs import container_name
from cellblock.cluster.facts import state
from tests import documented
from tests.integration.conftest import default_variant, other_variants, running_cluster
from tests.integration.jobs import ended, submit
from tests.integration.local_cluster import LocalCluster, podman, restart_container
from tests.ports import free_port

pytestmark = pytest.mark.integration

NODE, OTHER = "worker-1", "worker-2"
# Turns are short, and one failure suffices: strikes are tried without a cluster (tests/spank_jail).
FILE = """\
metrics: {port: PORT}
node_sets: [{name: worker, count: 2}]
health:
  interval: 10s
  active: null
  folder: FOLDER
  checks:
    disk: {strikes: 1/1, passes: 1}
    writable: {passes: 1, optional: true}
    # The machine is shared with other tests.
    memory: {action: warn}
    network: {action: warn}
slurm:
  extra:
    slurm.conf: |
      SchedulerParameters=nohold_on_prolog_fail,batch_sched_delay=0,bf_interval=3,sched_interval=5
      KillWait=5
"""
# What fills a node's /var/log beyond the limit, not to its end, and takes it away.
FILL = 'head -c "$(($(df --output=avail -B1 /var/log | tail -n 1) - 4000000))" /dev/zero > /var/log/fill'
EMPTY = "rm -f /var/log/fill"
# Executable, other than /run; root's alone.
OWN = "/var/spool/health-test"
MANY = 40
# A check of a site's own, in the jail.
AS_USER = """\
#!/bin/sh
echo "$(id -un) on $CELLBLOCK_NODE has $0 $1"
[ ! -e /home/ada/broken ] || exit 1
"""
# Several slurmd in a container, each with a spool and a pid file of its own: by that, one ends another. With
# auth/slurm each has the key, as the node's own, and serves a socket.
START_SLURMD = """\
[ ! -e /run/cellblock/slurm.jwks ] || export SLURM_SACK_JWKS=/run/cellblock/slurm.jwks
for n in $(seq $0 $1); do
    export name=real-$n conf="CPUs=1 RealMemory=100 Port=$((7000 + n)) Feature=real"
    setsid unshare --mount --propagation private sh -c '
        mount -t tmpfs tmpfs /var/spool/slurmd && mount -t tmpfs tmpfs /run/slurm &&
        : > /run/$name.pid &&
        mount --bind /run/$name.pid /run/slurmd.pid &&
        exec slurmd -D -N $name --conf-server controller:6817 -Z --conf "$conf"' </dev/null >/dev/null 2>&1 &
done
"""
# Of the soak. `build.py test --thorough` takes 10,000.
TURNS = int(os.environ.get("CELLBLOCK_HEALTH_TURNS", "50"))
# On one release it takes five minutes, in which little is computed; `--thorough` takes all of them.
VARIANTS = [default_variant(), *(other_variants() if os.environ.get("CELLBLOCK_HEALTH_RELEASES") else ())]


@pytest.fixture(scope="module", params=VARIANTS)
def nodes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    site = tmp_path_factory.mktemp("site")
    site.chmod(0o755)
    (site / "checks.conf").write_text("check as-user limit=20 strikes=1/1 passes=1 user=ada\n")
    (site / "as-user").write_text(AS_USER)
    (site / "as-user").chmod(0o755)
    text = FILE.replace("PORT", str(free_port())).replace("FOLDER", str(site))
    with running_cluster("health", request.param, text=text) as running:
        running.add_user("ada")
        yield running


@pytest.fixture(autouse=True)
def as_before(nodes: LocalCluster) -> Iterator[None]:
    yield
    nodes.cancel_jobs()
    for node in (NODE, OTHER):
        nodes.on(node, "sh", "-c", f"{EMPTY}; mount -o remount,rw /tmp")
        nodes.on("controller", "scontrol", "update", f"nodename={node}", "state=resume")
    for node in (NODE, OTHER):
        nodes.wait_until(f"{node} serves", lambda node=node: sinfo(nodes, node)[0] == "idle")  # type: ignore[misc]


def sinfo(nodes: LocalCluster, node: str) -> tuple[str, str]:
    """State and reason of a node in Slurm."""
    shown = nodes.on("controller", "sinfo", "-hN", "-n", node, "-o", "%T|%E").ok().strip().partition("|")
    return shown[0].rstrip("*"), shown[2]


def drained(nodes: LocalCluster, node: str) -> bool:
    return sinfo(nodes, node)[0] in ("drained", "draining")


def turn(nodes: LocalCluster, node: str) -> None:
    """As slurmd has it, without waiting for its next."""
    nodes.on(node, "node-health").ok()


def test_what_the_nodes_found(nodes: LocalCluster, tmp_path: Path) -> None:
    """and nothing drains on a node that is well"""
    for node in (NODE, OTHER):
        turn(nodes, node)
    one, every, as_json = documented.lines_for("health.md", "test_what_the_nodes_found")
    own = f" --name {nodes.request.name}"
    said = documented.type_line(every + own, tmp_path)
    assert f"{NODE}  idle  " in said
    assert " failed" not in said
    assert "jail              passed" in documented.type_line(one + own, tmp_path)
    found = json.loads(documented.type_line(as_json + own, tmp_path))["nodes"]
    assert [each["node"] for each in found] == [NODE, OTHER]
    assert {each["check"] for each in found[0]["checks"]} >= {"jail", "disk", "auth", "clock"}
    verdicts = {each["check"]: each["verdict"] for each in found[0]["checks"]}
    assert {verdicts[check] for check in ("jail", "auth", "clock", "dns", "cgroup")} == {"passed"}


def test_what_a_turn_costs(nodes: LocalCluster, tmp_path: Path) -> None:
    """far more than on a quiet machine, whose figures are the page's"""
    (line,) = documented.lines_for("benchmarks.md", "test_what_a_turn_costs")
    said = documented.type_line(f"{line} --name {nodes.request.name} --turns 5 --json", tmp_path)
    measured = json.loads(said.splitlines()[-1])
    assert measured["turns"] == 5
    assert 0 < measured["quick_checks_cpu_ms"] < 500


def test_a_node_drains_for_a_fault_and_comes_back_without_it(nodes: LocalCluster) -> None:
    """slurmd runs the turns"""
    nodes.on(NODE, "sh", "-c", FILL).ok()
    nodes.wait_until("it is drained", lambda: drained(nodes, NODE))
    reason = sinfo(nodes, NODE)[1]
    assert re.fullmatch(
        r"\[cellblock:disk\] /var/log is \d+ % full, instance \w{8}, \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", reason
    )
    shown = nodes.on("controller", "scontrol", "show", "node", NODE).ok()
    nodes.wait_until(
        "the comment says so",
        lambda: re.search(
            r"Comment=\[cellblock:health\] .*failed: .*disk",
            nodes.on("controller", "scontrol", "show", "node", NODE).ok(),
        ),
    )
    assert "DRAIN" in shown
    assert not drained(nodes, OTHER)
    nodes.on(NODE, "sh", "-c", EMPTY).ok()
    nodes.wait_until("it serves again", lambda: not drained(nodes, NODE))


def test_what_users_have_slurmstepd_complain_of_drains_no_node(nodes: LocalCluster) -> None:
    """its log is full for a moment, and then cut; a user's step writes 20 MB a second to it, by PMI2"""
    fill = "yes 'error: invalid pmi2 command' | head -c 300M >>/var/log/slurm/slurmd.log; node-health"
    assert "No space left" in nodes.on(NODE, "sh", "-c", f"{{ {fill}; }} 2>&1").out
    assert not drained(nodes, NODE)
    kept = "[ $(stat -c %s /var/log/slurm/slurmd.log) -lt 67108864 ]"
    nodes.wait_until("the log is cut", lambda: nodes.on(NODE, "sh", "-c", kept).status == 0)


def test_an_administrators_drain_is_never_touched(nodes: LocalCluster) -> None:
    """one of before the fault, and one in the place of ours"""
    mine = "my own reason, instance of nothing"
    update = ("controller", "scontrol", "update", f"nodename={NODE}", "state=drain", f"reason={mine}")
    nodes.on(*update).ok()
    for script in (FILL, EMPTY):
        nodes.on(NODE, "sh", "-c", script).ok()
        turn(nodes, NODE)
        assert sinfo(nodes, NODE) == ("drained", mine)
    nodes.on("controller", "scontrol", "update", f"nodename={NODE}", "state=resume").ok()
    nodes.on(NODE, "sh", "-c", FILL).ok()
    turn(nodes, NODE)
    assert sinfo(nodes, NODE)[1].startswith("[cellblock:disk]")
    nodes.on(*update).ok()
    nodes.on(NODE, "sh", "-c", EMPTY).ok()
    turn(nodes, NODE)
    turn(nodes, NODE)
    assert sinfo(nodes, NODE) == ("drained", mine)


def test_a_node_that_an_administrator_takes_back_has_its_strikes_again(nodes: LocalCluster) -> None:
    nodes.on(NODE, "sh", "-c", FILL).ok()
    turn(nodes, NODE)
    assert drained(nodes, NODE)
    nodes.on("controller", "scontrol", "update", f"nodename={NODE}", "state=resume").ok()
    shown = nodes.on(NODE, "sh", "-c", f"{EMPTY}; node-health; node-health --show").ok()
    assert "(sick)" not in shown
    assert not drained(nodes, NODE)


def test_no_job_begins_on_a_node_that_is_not_fit_for_it(nodes: LocalCluster) -> None:
    """the job waits, and runs when the node is well"""
    nodes.on(NODE, "mount", "-o", "remount,ro", "/tmp").ok()
    job = submit(nodes, "ada", "true", "-n1", "--mem=1", "--chdir=/", "--output=/dev/null", "-w", NODE)
    nodes.wait_until("the node is drained", lambda: drained(nodes, NODE))
    assert "/tmp" in sinfo(nodes, NODE)[1]
    nodes.wait_until("the job is queued again", lambda: nodes.job(job)["JobState"] == "PENDING")
    assert nodes.job(job)["Restarts"] == "1"
    nodes.on(NODE, "mount", "-o", "remount,rw", "/tmp").ok()
    # Slurm has jobs that it queued again wait for two minutes.
    nodes.on("controller", "scontrol", "update", f"jobid={job}", "starttime=now").ok()
    assert nodes.job(ended(nodes, job))["JobState"] == "COMPLETED"


def test_a_job_leaves_a_check_out_where_the_administrator_lets_it(nodes: LocalCluster) -> None:
    """by the comment of the job"""
    nodes.on(NODE, "mount", "-o", "remount,ro", "/tmp").ok()
    options = ("-n1", "--mem=1", "--chdir=/", "--output=/dev/null", "-w", NODE)
    job = submit(nodes, "ada", "true", *options, "--comment=health-leave-out=disk,writable")
    done = nodes.job(ended(nodes, job))
    assert (done["JobState"], done["Restarts"]) == ("COMPLETED", "0")


def test_a_node_that_fails_before_it_registers_comes_up_drained(nodes: LocalCluster) -> None:
    """one that slurmctld knows, and one that it does not"""
    config = state.folder(nodes.request.name) / "config/worker/health.conf"
    before = config.read_text()
    try:
        config.write_text(f"{before}check memory least=101 strikes=2/2 passes=1 action=drain\n")
        restart_container(container_name(nodes.request.name, NODE))
        nodes.wait_until("it is drained", lambda: drained(nodes, NODE))
        assert sinfo(nodes, NODE)[1].startswith("[cellblock:memory] ")
        podman("stop", "--time", "5", container_name(nodes.request.name, NODE))
        nodes.on("controller", "scontrol", "delete", f"nodename={NODE}").ok()
        podman("start", container_name(nodes.request.name, NODE))
        nodes.wait_until("it is there", lambda: sinfo(nodes, NODE)[0])
        assert drained(nodes, NODE)
        # 22.05 has it with the first turn.
        nodes.wait_until("it says why", lambda: sinfo(nodes, NODE)[1].startswith("[cellblock:memory] "))
    finally:
        config.write_text(before)
    nodes.wait_until("it serves again", lambda: sinfo(nodes, NODE)[0] == "idle")


def test_munged_that_does_not_answer(nodes: LocalCluster) -> None:
    """The node cannot tell Slurm then; slurmctld finds it not answering."""
    if nodes.request.file and "auth: slurm" in nodes.request.file.read_text():
        pytest.skip("this cluster has no munged")
    pids = nodes.numbers_of(NODE, "munged")
    try:
        nodes.on(NODE, "sh", "-c", f"kill -STOP {' '.join(pids)}").ok()
        shown = nodes.on(NODE, "sh", "-c", "node-health --offline; node-health --show").ok()
    finally:
        nodes.on(NODE, "sh", "-c", f"kill -CONT {' '.join(pids)}").ok()
    assert re.search(r"auth +failed +munged does not answer", shown)


def many(nodes: LocalCluster, what: str) -> None:
    """A turn of all 40 nodes at once, in the container of one."""
    options = f"--config {OWN}/health.conf --checks {OWN}/checks --state {OWN}/state"
    script = f"{what}; for n in $(seq {MANY}); do node-health {options} --node many-$n 2>&1 & done; wait"
    nodes.on(NODE, "sh", "-c", script).ok()


def count(nodes: LocalCluster) -> int:
    shown = nodes.on("controller", "sinfo", "-hN", "--all", "-n", f"many-[1-{MANY}]", "-o", "%N %T %E").ok()
    return len({line for line in shown.splitlines() if " drain" in line and "[cellblock:broken]" in line})


def test_a_check_that_is_broken_everywhere_drains_no_more_than_the_budget(nodes: LocalCluster) -> None:
    """40 nodes that slurmctld knows, and node-health for each; their machines are not there"""
    if not nodes.status.release >= "24.11":
        pytest.skip("this release makes no nodes by scontrol")
    nodes.on("controller", "scontrol", "create", f"nodename=many-[1-{MANY}]", "state=cloud", "cpus=1").ok()
    lines = "check broken strikes=1/1 passes=2\n"
    make = f"mkdir -p {OWN}/checks; cat > {OWN}/checks/checks.conf; : > {OWN}/health.conf"
    nodes.on(NODE, "sh", "-c", make, stdin=lines).ok()
    program = (
        f"printf '#!/bin/sh\\n[ ! -e {OWN}/bad ] || {{ echo broken; exit 1; }}\\n' > {OWN}/checks/broken"
    )
    nodes.on(NODE, "sh", "-c", f"{program}; chmod 755 {OWN}/checks/broken").ok()
    try:
        many(nodes, f"touch {OWN}/bad")
        for _ in range(3):
            many(nodes, "true")
        # A tenth of them and of the two workers.
        assert 2 <= count(nodes) <= 4
        over = nodes.on(NODE, "sh", "-c", f"cat {OWN}/state/*/metrics | grep -c over_budget").ok()
        assert int(over) == MANY - count(nodes)
        for _ in range(3):
            many(nodes, f"rm -f {OWN}/bad")
        assert count(nodes) == 0
    finally:
        nodes.on(NODE, "rm", "-rf", OWN)
        nodes.on("controller", "scontrol", "delete", f"nodename=many-[1-{MANY}]")


def idle(nodes: LocalCluster) -> int:
    """How many of the 40 that run are."""
    return (
        nodes.on("controller", "sinfo", "-hN", "-n", f"real-[1-{MANY}]", "-o", "%T").out.split().count("idle")
    )


def ours(nodes: LocalCluster) -> int:
    """How many nodes of the cluster the check has drained."""
    shown = nodes.on("controller", "sinfo", "-hN", "--all", "-o", "%N|%T|%E").ok().splitlines()
    return len({line for line in shown if "|drain" in line and "[cellblock:memory]" in line})


def test_forty_slurmd_drain_no_more_than_the_budget_and_recover(nodes: LocalCluster) -> None:
    """40 that run, in two containers: their own turns, a check that is broken everywhere, and then is not"""
    if not nodes.status.release >= "24.11":
        pytest.skip("tried with nodes that register themselves, of 24.11 and later")
    config = state.folder(nodes.request.name) / "config/worker/health.conf"
    before = config.read_text()
    try:
        for container, first in ((NODE, 1), (OTHER, MANY // 2 + 1)):
            numbers = (str(first), str(first + MANY // 2 - 1))
            nodes.on(container, "sh", "-c", START_SLURMD, *numbers).ok()
        nodes.wait_until("all are there", lambda: idle(nodes) == MANY)
        config.write_text(f"{before}check memory least=101 strikes=1/1 passes=1 action=drain prolog=no\n")
        over = "cat /run/cellblock/health/*/metrics | grep -c 'over_budget.*memory'"

        def over_budget() -> int:
            return sum(int(nodes.on(one, "sh", "-c", over).out) for one in (NODE, OTHER))

        nodes.wait_until("all have found it", lambda: over_budget() + ours(nodes) == MANY + 2)
        # A tenth of the 42; those that drained at the same moment count again.
        nodes.wait_until("the budget is kept", lambda: 2 <= ours(nodes) <= 4)
        config.write_text(before)
        nodes.wait_until("all serve again", lambda: idle(nodes) == MANY)
        assert ours(nodes) == 0
    finally:
        config.write_text(before)
        for container in (NODE, OTHER):
            nodes.on(container, "pkill", "-f", "^slurmd -D -N real-")
        nodes.on("controller", "scontrol", "update", f"nodename=real-[1-{MANY}]", "state=down", "reason=over")
        nodes.on("controller", "scontrol", "delete", f"nodename=real-[1-{MANY}]")


def test_a_check_in_the_jail(nodes: LocalCluster) -> None:
    """as a user, who can make it fail, and so it drains nothing"""

    def shown() -> tuple[str, bool, str]:
        turn(nodes, NODE)
        checks = json.loads(nodes.on(NODE, "node-health", "--show", "--json").ok())["checks"]
        (found,) = [one for one in checks if one["check"] == "as-user"]
        return found["verdict"], found["sick"], found["text"]

    # Without settings, which come behind.
    assert shown() == ("passed", False, f"ada on {NODE} has as-user ")
    nodes.jail("touch", "/home/ada/broken", user="ada").ok()
    assert shown()[:2] == ("failed", True)
    assert not drained(nodes, NODE)
    nodes.jail("rm", "/home/ada/broken", user="ada").ok()
    assert shown()[:2] == ("passed", False)


# A job that computes, takes memory, writes to /tmp and /dev/shm, and leaves processes to init.
BUSY = """\
end=$(($(date +%s) + $0))
while [ $(date +%s) -lt $end ]; do
    head -c 20M /dev/urandom > /tmp/x; cp /tmp/x /dev/shm/x; sha256sum /tmp/x > /dev/null
    for i in 1 2 3 4 5 6 7 8; do (sleep 0.1 &); done
    rm -f /tmp/x /dev/shm/x
done
"""


def test_nothing_drains_under_load(nodes: LocalCluster) -> None:
    """with the image's own table: turns one after the other while jobs come and go"""
    nodes.jail("sh", "-c", "cat > /home/ada/busy", stdin=BUSY).ok()
    array = ("--array=1-1000%4", "-n1", "--mem=100M", "--chdir=/tmp", "--output=/dev/null")
    waiting = ("controller", "squeue", "-hr", "-t", "pending", "-o", "%i")
    options = f"--config {OWN}/soak.conf --state {OWN}/soak"
    # A drain that a later turn takes back counts, too: the reason lies there meanwhile.
    look = f"for reason in {OWN}/soak/*/drained; do [ ! -e $reason ] || {{ cat $reason; exit 3; }}; done"
    turns = f"i=0; while [ $i -lt $0 ]; do node-health {options} || exit; {look}; i=$((i + 1)); done"
    try:
        nodes.on(NODE, "sh", "-c", f"mkdir -p {OWN}; : > {OWN}/soak.conf").ok()
        for done in range(0, TURNS, 100):
            # Slurm allows arrays of 1,000, which end before 10,000 turns do.
            if len(nodes.on(*waiting).ok().splitlines()) < 500:
                submit(nodes, "ada", 'bash -c "$(cat /home/ada/busy)" $((RANDOM % 5))', *array)
            nodes.on(NODE, "sh", "-c", turns, str(min(100, TURNS - done)), timeout_s=600).ok()
        shown = json.loads(nodes.on(NODE, "sh", "-c", f"node-health {options} --show --json").ok())
        assert {"jail", "disk", "memory", "auth"} <= {one["check"] for one in shown["checks"]}
        assert [one for one in shown["checks"] if one["sick"] and one["action"] == "drain"] == []
        assert not drained(nodes, NODE), sinfo(nodes, NODE)
        assert "R" in nodes.on("controller", "squeue", "-h", "-t", "running", "-o", "%t").ok()
    finally:
        nodes.cancel_jobs()
        nodes.on(NODE, "rm", "-rf", OWN)
