# SPDX-License-Identifier: Apache-2.0
"""Jobs that measure nodes: eight of them, one slowed on purpose, and a user's job that takes the node."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.cluster.engine.capabilities import capabilities
from cellblock.cluster.engine.container_specs import container_name, network_name
from cellblock.cluster.facts import state
from cellblock.cluster.facts.host import container_limits
from cellblock.kubernetes.control import WRITES
from cellblock.metrics.dashboards import NODES as NODES_BOARD
from tests import documented
from tests.integration.conftest import running_cluster
from tests.integration.jobs import ended, submit
from tests.integration.local_cluster import LocalCluster, podman
from tests.integration.roles.test_metrics import Measured, running_prometheus
from tests.ports import free_port

pytestmark = pytest.mark.integration

NODES = [f"worker-{number}" for number in range(1, 9)]
SLOW = "worker-6"
# The nodes share two cores. What is slowed is a tenth of the others; limits are far below what chance does.
FILE = """\
metrics: {port: PORT}
node_sets: [{name: worker, count: 8, gres: {"gpu:a100": 2}}]
health:
  interval: 10m
  active: {every: 30d}
  checks:
    processor-speed: {strikes: 1/1, settings: {seconds: 2, share: 30}}
    memory-speed: {strikes: 1/1, settings: {seconds: 1, share: 15}}
    disk-speed: {settings: {mb: 8, share: 5}}
    gpu-speed: {strikes: 1/1, settings: {seconds: 20, share: 30}}
    pair-speed: {strikes: 1/1, settings: {seconds: 1, share: 30}}
    network: {action: warn}
    memory: {action: warn}
"""
SLOWLY = ("tbf", "rate", "20mbit", "burst", "32kb", "latency", "50ms")
# As cpulimit does, for longer at once: after a short stop the kernel gives a program the time that it missed.
SLOWED = """\
while [ -e /run/slow ]; do
    running=$(pgrep -x node-speed) || { sleep 0.1; continue; }
    kill -STOP $running; sleep 3; kill -CONT $running; sleep 0.02
done
"""
# What measures GPUs, where there are none: a stand-in, which asks who it is and what it has.
GPU_PROGRAM = "/usr/libexec/cellblock/gpu-speed"
STAND_IN = f"""\
#!/bin/sh
who="$(id -u) $CUDA_VISIBLE_DEVICES"
[ "$who" = "65534 0,1" ] || {{ echo "no GPU: $who"; exit 2; }}
echo "gpu 0 X multiply 900 GFLOP/s"
[ "$SLURMD_NODENAME" = {SLOW} ] && echo "gpu 1 X multiply 90 GFLOP/s" || echo "gpu 1 X multiply 800 GFLOP/s"
"""
# A job of its own holds nodes for longer than a job of a user's may wait.
LONG = """\
check processor-speed seconds=60
"""


@pytest.fixture(scope="module")
def port() -> int:
    """Of the exporter."""
    return free_port()


@pytest.fixture(scope="module")
def nodes(port: int) -> Iterator[LocalCluster]:
    with running_cluster("active", text=FILE.replace("PORT", str(port))) as running:
        running.add_user("ada")
        # Not by the clock meanwhile.
        running.on("controller", "pkill", "-STOP", "-f", "follow-active-checks")
        yield running


@pytest.fixture(autouse=True)
def as_before(nodes: LocalCluster) -> Iterator[None]:
    yield
    nodes.cancel_jobs()
    nodes.on("controller", "scontrol", "update", f"nodename={','.join(NODES)}", "state=resume")
    nodes.wait_until("all serve", lambda: idle(nodes) == len(NODES))


def idle(nodes: LocalCluster) -> int:
    return nodes.on("controller", "sinfo", "-hN", "-p", "main", "-o", "%T").ok().split().count("idle")


def measure(nodes: LocalCluster, *names: str) -> dict[str, dict[str, tuple[str, str]]]:
    """Check -> node -> its verdict and text, of a measurement now; first, nodes of one before complete."""
    nodes.wait_until_none_completes()
    done = nodes.on("controller", "active-checks", *names)
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for line in done.out.splitlines():
        node, check, verdict, text = re.split(r"  +", line, maxsplit=3)
        found.setdefault(check, {})[node] = verdict, text
    assert found, done.err
    return found


def failed(found: dict[str, tuple[str, str]]) -> set[str]:
    return {node for node, (verdict, _) in found.items() if verdict == "failed"}


def reason(nodes: LocalCluster, node: str) -> str:
    return nodes.on("controller", "sinfo", "-hN", "-n", node, "-o", "%T|%E").ok().splitlines()[0]


def test_nodes_that_are_alike_pass(nodes: LocalCluster) -> None:
    found = measure(nodes)
    # The jail is of a variant without CUDA.
    no_program = f"the jail has no {GPU_PROGRAM}; jail-devel of a CUDA variant does"
    assert found.pop("gpu-speed") == dict.fromkeys(NODES, ("could not run", no_program))
    assert set(found) == {"processor-speed", "memory-speed", "disk-speed", "pair-speed", "all-reduce"}
    assert {check: failed(verdicts) for check, verdicts in found.items()} == {check: set() for check in found}
    assert {verdict for verdicts in found.values() for verdict, _ in verdicts.values()} == {"passed"}


def test_by_hand(nodes: LocalCluster, tmp_path: Path) -> None:
    """one node, and some to compare it with; the verdicts are shown with the others"""
    one, every = documented.lines_for("health.md", "test_by_hand")
    own = f" --name {nodes.request.name}"
    said = documented.type_line(one + own, tmp_path)
    assert re.search(r"^worker-2 +pair-speed +passed +\d+ MB a second; the median of 4 nodes", said, re.M)
    shown = json.loads(documented.type_line(f"{every}{own} --json", tmp_path))["nodes"]
    verdicts = {check["check"]: check["verdict"] for check in shown[1]["checks"]}
    assert verdicts["pair-speed"] == verdicts["jail"] == "passed"


def test_verdicts_are_metrics(nodes: LocalCluster, port: int, tmp_path: Path) -> None:
    """as the controller tells them each minute, to a Prometheus by the page's configuration"""
    measure(nodes)
    nodes.on("controller", "active-checks", "--due", "--metrics", "/mnt/jail-verdicts").ok()
    (block,) = documented.blocks_for("metrics.md", "test_every_panel_has_data")
    config = block.text.replace("127.0.0.1:9341", f"127.0.0.1:{port}").replace("30s", "2s")
    config = config.replace("rule_files: [cellblock-rules.yaml]\n", "")
    with running_prometheus(tmp_path, config) as address:
        measured = Measured(nodes, port, address)
        passed = 'count by (check) (cellblock_health_verdict{check=~".*-speed|all-reduce"} == 0)'
        nodes.wait_until(
            "the verdicts of all checks on all nodes",
            lambda: [int(one["value"][1]) for one in measured.ask(passed)] == [len(NODES)] * 5,
        )
        (panel,) = [text for title, text in NODES_BOARD.expressions() if "a check failed last" in title]
        shown = measured.ask(panel.replace("$instance", ".*"))
        assert {"pair-speed", "jail"} <= {one["metric"]["check"] for one in shown}


def test_a_slow_network_is_named(nodes: LocalCluster) -> None:
    """in three rounds of pairs, with tc on one node's device"""
    if not shutil.which("tc"):
        pytest.skip("iproute2 is not installed")
    pid = podman("inspect", "--format", "{{.State.Pid}}", container_name(nodes.request.name, SLOW)).strip()
    inside = ("nsenter", "--net", f"--target={pid}")
    subprocess.run([*inside, "tc", "qdisc", "add", "dev", "eth0", "root", *SLOWLY], check=True)
    try:
        found = measure(nodes)
    finally:
        subprocess.run([*inside, "tc", "qdisc", "del", "dev", "eth0", "root"], check=True)
    assert failed(found["pair-speed"]) == {SLOW}, found["pair-speed"]
    assert re.fullmatch(
        r"drained\|\[cellblock:pair-speed\] \d+ MB a second; the median of 8 nodes is \d+,"
        r" instance active, .*Z",
        reason(nodes, SLOW),
    )
    # The node's own checks leave it alone, and so does the next measurement.
    nodes.on(SLOW, "node-health").ok()
    assert "pair-speed" in reason(nodes, SLOW)
    assert SLOW not in measure(nodes)["pair-speed"]


def test_a_slow_gpu_is_named_and_drains_nothing(nodes: LocalCluster) -> None:
    """by a program of the jail, as nobody, which sees the GPUs of the job"""
    program = nodes.root / GPU_PROGRAM[1:]
    program.parent.mkdir(exist_ok=True)
    program.write_text(STAND_IN)
    program.chmod(0o755)
    try:
        found = measure(nodes)["gpu-speed"]
    finally:
        program.unlink()
    assert failed(found) == {SLOW}, found
    assert found[SLOW][1] == "90 GFLOP a second; the median of 8 nodes is 800"
    assert {verdict for node, (verdict, _) in found.items() if node != SLOW} == {"passed"}
    # The job that measured may still be completing.
    assert reason(nodes, SLOW) in {"idle|none", "completing|none"}


def test_slow_processors_are_named(nodes: LocalCluster) -> None:
    """a node that an administrator took back after its repair is measured without being asked for"""
    nodes.on(SLOW, "sh", "-c", f"touch /run/slow; setsid sh -c '{SLOWED}' </dev/null >/dev/null 2>&1 &").ok()
    try:
        found = measure(nodes)
        # A node that an administrator took back begins with all its strikes: the next measurement drains it.
        if not reason(nodes, SLOW).startswith("drained|"):
            measure(nodes)
    finally:
        nodes.on(SLOW, "rm", "-f", "/run/slow")
    assert failed(found["processor-speed"]) == {SLOW}, json.dumps(found["processor-speed"])
    assert reason(nodes, SLOW).startswith("drained|[cellblock:")
    nodes.on("controller", "active-checks", "--due").ok()
    nodes.on("controller", "scontrol", "update", f"nodename={SLOW}", "state=resume").ok()

    def passes() -> bool:
        said = nodes.on("controller", "active-checks", "--due").out
        return bool(re.search(rf"^{SLOW} +processor-speed +passed", said, re.M))

    nodes.wait_until("it is measured again, and passes", passes)
    nodes.wait_until("it serves", lambda: reason(nodes, SLOW).startswith("idle|"))
    # Then nobody is due.
    nodes.wait_until_none_completes()
    assert nodes.on("controller", "active-checks", "--due").ok() == ""


def test_from_a_container_of_its_own(nodes: LocalCluster, tmp_path: Path) -> None:
    """as on Kubernetes, where slurmctld's is not root: with rights and folders of the pod `health`"""
    name = nodes.request.name or ""
    controller, own = container_name(name, "controller"), container_name(name, "health")
    inspected = podman("inspect", "--format", "{{.Image}}{{range .Config.Env}} {{.}}{{end}}", controller)
    image, *environment = inspected.split()
    folder = state.folder(name)
    auth = "slurm" if "CELLBLOCK_AUTH=slurm" in environment else "munge"
    # Where others may write, as a ConfigMap's folder is, if it is not read-only.
    configuration = tmp_path / "configuration"
    shutil.copytree(folder / "config/slurm", configuration)
    configuration.chmod(0o777)
    writes = [*WRITES, "/etc/slurm"]
    options = [
        *(f"--tmpfs={path}:mode=0777,size=16m,notmpcopyup" for path in writes),
        *(f"--cap-add={one}" for one in capabilities("controller")),
        *(f"--env={one}" for one in environment if one.startswith(("CELLBLOCK_AUTH=", "CELLBLOCK_CLUSTER="))),
        *(f"--volume={configuration}:/etc/cellblock/slurm:ro", f"--network={network_name(name)}"),
        f"--volume={folder}/secrets/{auth}:/run/secrets/cellblock:ro",
        # Those of all containers: a user's processes are counted over all of them, and munge's alone are
        # hundreds a cluster.
        *(f"--ulimit={limit.name}={limit.value}:{limit.value}" for limit in container_limits()),
        *("--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL"),
        *("--security-opt=no-new-privileges", '--entrypoint=["tini", "--", "cellblock-init", "health"]'),
    ]
    try:
        podman("run", "--detach", f"--name={own}", *options, image)
        nodes.wait_until_none_completes()

        def measured() -> str:
            return podman("exec", own, "sh", "-c", f"active-checks {' '.join(NODES[:3])} 2>&1 || true")

        nodes.wait_until("they are measured", lambda: "all-reduce" in measured())
        assert re.search(r"^worker-2 +pair-speed +passed +\d+ MB a second", measured(), re.M)
    finally:
        podman("rm", "--force", "--time=1", own)


def test_a_user_gets_the_node_within_two_seconds(nodes: LocalCluster) -> None:
    """from a job that measures all of them; what it has found is thrown away"""
    config = nodes.on("controller", "cat", "/etc/slurm/health-active.conf").ok()
    own = "/run/active.conf"
    nodes.on("controller", "sh", "-c", f"cat > {own}", stdin=config + LONG).ok()
    done = []
    running = threading.Thread(
        target=lambda: done.append(nodes.on("controller", "active-checks", f"--config={own}")), daemon=True
    )
    running.start()
    nodes.wait_until("it measures", lambda: not idle(nodes))
    waited = []
    for options in (("-w", SLOW), ()):
        asked = time.time()
        job = submit(nodes, "ada", "date +%s.%N", "-n1", "--mem=1", "--chdir=/", "-o", "/dev/null", *options)
        shown = nodes.job(ended(nodes, job))
        assert shown["JobState"] == "COMPLETED"
        started = nodes.on("controller", "date", "-d", shown["StartTime"], "+%s").ok()
        waited.append(int(started) - asked)
    running.join(timeout=60)
    assert waited[0] <= 2, waited
    assert waited[1] <= 2, waited
    assert done[0].status == 1
    assert "was ended for a user's" in done[0].err


def test_nobody_else_submits_there(nodes: LocalCluster) -> None:
    refused = nodes.client("srun", "-p", "cellblock_health", "true", user="ada")
    assert refused.status != 0
    assert "cellblock_health" not in nodes.client("sinfo", user="ada").ok()
