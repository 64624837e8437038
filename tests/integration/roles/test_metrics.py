# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes the exporter of a real cluster, of each Slurm release."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cellblock.cluster.configuration.slurm_features import SlurmFeatures
from cellblock.cluster.engine.container_specs import container_name
from cellblock.metrics.alert_rules import rules_file
from cellblock.metrics.dashboards import ALL
from tests import documented
from tests.integration.conftest import default_variant, other_variants, running_cluster
from tests.integration.jobs import submit
from tests.integration.local_cluster import LocalCluster
from tests.integration.roles.test_accounting import podman
from tests.ports import free_port

pytestmark = pytest.mark.integration

FILE = """\
accounting: {{}}
metrics: {{port: {port}, interval: 5}}
# What the machine shares with other tests drains nothing.
health: {{interval: 10s, active: null, checks: {{memory: {{action: warn}}, network: {{action: warn}}}}}}
node_sets:
  - {{name: cpu, count: 1}}
  - {{name: gpu, count: 1, gres: {{"gpu:a100": 4}}}}
"""
_TIMEOUT_S = 90
_METRICS_UID = 65522


@dataclass(frozen=True)
class Measured:
    """A cluster with an exporter, and a Prometheus that scrapes it."""

    cluster: LocalCluster
    port: int
    prometheus: str

    @property
    def own_endpoints(self) -> bool:
        """Whether slurmctld has endpoints of its own."""
        return SlurmFeatures(self.cluster.status.release, "").openmetrics

    def page(self) -> str:
        """What the exporter serves."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def value(self, sample: str) -> float | None:
        """A sample of the page, or None."""
        lines = [line for line in self.page().splitlines() if line.startswith(f"{sample} ")]
        return float(lines[0].rpartition(" ")[2]) if lines else None

    def api(self, path: str, **query: str) -> Any:
        """An answer of Prometheus' API."""
        url = f"{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            document = json.load(answer)
        assert document["status"] == "success"
        return document["data"]

    def ask(self, expression: str) -> list[Any]:
        """What Prometheus says to an expression now."""
        result: list[Any] = self.api("query", query=expression)["result"]
        return result

    def wait_for(self, what: str, sample: str, wanted: float) -> None:
        """Wait until a sample of the page has a value."""
        self.cluster.wait_until(what, lambda: self.value(sample) == wanted)


@contextmanager
def running_prometheus(folder: Path, config: str) -> Iterator[str]:
    """A Prometheus with this configuration; gives its address."""
    program = shutil.which("prometheus")
    assert program, "prometheus is not installed: `python3 build.py test` installs it"
    (folder / "prometheus.yml").write_text(config)
    address = f"127.0.0.1:{free_port()}"
    options = (f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [program, *options, f"--web.listen-address={address}"], stderr=log, stdout=log
        )
    try:
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                with urllib.request.urlopen(f"http://{address}/-/ready", timeout=5):
                    break
            except OSError:
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.2)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module", params=[default_variant(), *other_variants()])
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    folder = tmp_path_factory.mktemp("metrics")
    port = free_port()
    shutil.copy(rules_file(), folder / "cellblock-rules.yaml")
    # The page's own, with its address and its intervals made this test's.
    (block,) = documented.blocks_for("metrics.md", "test_every_panel_has_data")
    config = block.text.replace("127.0.0.1:9341", f"127.0.0.1:{port}").replace("30s", "2s")
    with (
        running_cluster("metrics", request.param, text=FILE.format(port=port)) as running,
        running_prometheus(folder, config) as address,
    ):
        yield Measured(running, port, address)


def listed_names() -> dict[str, set[str]]:
    """Heading -> names of docs/metrics.md, where lines are `PREFIX: SUFFIX...`; `.` is the prefix itself."""
    names: dict[str, set[str]] = {}
    for block in documented.blocks_for("metrics.md", "test_the_names_are_those_of_the_page"):
        for line in block.text.splitlines():
            prefix, _, suffixes = line.partition(":")
            names.setdefault(prefix, set()).update(
                prefix if one == "." else f"{prefix}_{one}" for one in suffixes.split()
            )
    return names


def test_the_names_are_those_of_the_page(measured: Measured) -> None:
    # Users have figures while slurmctld knows a job of theirs: those that `up` proves the cluster by.
    sample = 'slurm_user_jobs{username="cellblock"}'
    measured.cluster.wait_until("a user has jobs", lambda: measured.value(sample) is not None)
    measured.wait_for("all questions are answered", "cellblock_slurmctld_up", 1)
    served = {line.split()[2] for line in measured.page().splitlines() if line.startswith("# TYPE slurm_")}
    everywhere = {name for names in listed_names().values() for name in names}
    if measured.cluster.status.release == "22.05":
        page = (documented.PROJECT / "docs/metrics.md").read_text()
        (told,) = re.findall(r"^Slurm 22\.05 does not tell (.*?)\n\n", page, re.DOTALL | re.MULTILINE)
        everywhere -= set(re.findall(r"`(slurm_\w+)`", told))
    assert served == everywhere


def test_jobs_users_and_nodes_are_counted(measured: Measured) -> None:
    cluster = measured.cluster
    cluster.add_user("ada")
    submit = ("sbatch", "-D/", "-o/dev/null", "--parsable")
    jail = cluster.jail
    job = jail(*submit, "--gres=gpu:2", "--mem=100M", "--wrap", "sleep 600", user="ada").ok().strip()
    held = jail(*submit, "--hold", "--wrap", "true", user="ada").ok().strip()
    jail(*submit, "--wrap", "false", user="ada").ok()
    measured.wait_for("the job runs", 'slurm_user_jobs_running{username="ada"}', 1)
    measured.wait_for("one has failed", 'slurm_user_jobs_failed{username="ada"}', 1)
    measured.wait_for("its GPUs", 'slurm_node_gpus_alloc{node="gpu-1"}', 2)
    assert measured.value('slurm_node_gpus{node="gpu-1"}') == 4
    assert measured.value('slurm_user_jobs_gpus_alloc{username="ada"}') == 2
    assert measured.value('slurm_account_jobs_hold{account="users"}') == 1
    assert measured.value('slurm_partition_jobs{partition="main"}') == 2
    assert measured.value("slurm_jobs_nodes_alloc") == 1
    # In bytes, whatever Slurm says.
    assert measured.value("slurm_jobs_memory_alloc") == 100 * 2**20
    assert measured.value('slurm_node_memory_alloc_bytes{node="gpu-1"}') == 100 * 2**20
    shown = cluster.on("controller", "scontrol", "show", "node", "cpu-1", "--oneliner").ok()
    (memory,) = [int(part.partition("=")[2]) for part in shown.split() if part.startswith("RealMemory=")]
    assert measured.value('slurm_node_memory_bytes{node="cpu-1"}') == memory * 2**20
    drain = ("scontrol", "update", "node=cpu-1")
    cluster.on("controller", *drain, "state=drain", "reason=tried").ok()
    try:
        measured.wait_for("the node is drained", "slurm_nodes_drained", 1)
        # To Slurm it is idle, too.
        assert measured.value("slurm_nodes_idle") == 1
        assert measured.value("slurm_nodes_draining") == 0
    finally:
        cluster.on("controller", *drain, "state=resume").ok()
    cluster.on("controller", "scancel", job, held).ok()
    measured.wait_for("it runs no more", 'slurm_user_jobs_running{username="ada"}', 0)


def test_every_panel_has_data(measured: Measured) -> None:
    """Each expression of each dashboard, asked of the Prometheus that scrapes"""
    # Users and accounts have figures while slurmctld knows a job of theirs.
    measured.cluster.add_user("ada")
    measured.cluster.jail("srun", "-D/", "true", user="ada").ok()
    asked = [
        (dashboard.uid, title, text.replace("$instance", ".*").replace("$__rate_interval", "1m"))
        for dashboard in ALL
        for title, text in dashboard.expressions()
    ]
    assert len(asked) > 60
    empty: list[tuple[str, str, str]] = []

    def all_have_data() -> bool:
        empty[:] = [one for one in asked if not measured.ask(one[2])]
        return not empty

    try:
        measured.cluster.wait_until("each expression gives data", all_have_data)
    except AssertionError:
        pytest.fail(f"these give none: {empty}")
    # The variable by which a dashboard is set to a cluster.
    labels = self_label(measured)
    assert labels == [f"127.0.0.1:{measured.port}"]


def self_label(measured: Measured) -> list[str]:
    values: list[str] = measured.api("label/instance/values", **{"match[]": "cellblock_slurmctld_up"})
    return values


def test_rules_are_evaluated_without_a_fault(measured: Measured) -> None:
    def rules() -> list[dict[str, Any]]:
        return [rule for group in measured.api("rules")["groups"] for rule in group["rules"]]

    measured.cluster.wait_until("they were evaluated", lambda: all(one["health"] == "ok" for one in rules()))
    groups = yaml.safe_load(rules_file().read_text())["groups"]
    assert len(rules()) == sum(len(group["rules"]) for group in groups)
    measured.cluster.wait_until(
        "the share is there", lambda: bool(measured.ask("cluster:slurm_cpus_alloc:ratio"))
    )
    firing = [one["name"] for one in rules() if one.get("state") == "firing"]
    assert firing == []


@pytest.mark.others_at_night
def test_promtool_reads_the_page(measured: Measured) -> None:
    # 3: it reads all, and has advice on names, which are Slurm's.
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=measured.page(), capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 3), done.stderr
    assert not [line for line in done.stderr.splitlines() if line.startswith("cellblock_")], done.stderr


@pytest.mark.others_at_night
def test_slurmctld_is_asked_once_an_interval_however_many_scrape(measured: Measured) -> None:
    def asked() -> float:
        sample = 'cellblock_exporter_questions_total{kind="jobs",result="answered"}'
        return measured.value(sample) or 0

    def requests() -> int:
        lines = measured.cluster.on("controller", "sdiag").ok().splitlines()
        found = [line for line in lines if f"( {_METRICS_UID:>7})" in line or f"({_METRICS_UID:>8})" in line]
        return sum(int(line.split("count:")[1].split()[0]) for line in found)

    started, before, sent = time.monotonic(), asked(), requests()
    threads = [threading.Thread(target=lambda: [measured.page() for _ in range(100)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(max(0.0, 11 - (time.monotonic() - started)))
    after, sent_after, took = asked(), requests(), time.monotonic() - started
    most = took / 5 + 1
    assert 1 <= after - before <= most
    if not measured.own_endpoints:
        # Four commands; scontrol and squeue ask for partitions and configuration besides.
        assert 0 < sent_after - sent <= 12 * most


@pytest.mark.others_at_night
def test_a_hung_slurmctld_is_said_and_the_exporter_stays(measured: Measured) -> None:
    controller = container_name(measured.cluster.request.name or "", "controller")
    measured.wait_for("slurmctld answers", "cellblock_slurmctld_up", 1)
    # It hangs: connections are taken and nothing is said.
    podman("pause", controller)
    try:
        measured.wait_for("it is said", "cellblock_slurmctld_up", 0)
        started = time.monotonic()
        measured.page()
        assert time.monotonic() - started < 1
        measured.cluster.wait_until("old figures go", lambda: measured.value("slurm_nodes") is None)
        age = measured.value('cellblock_exporter_cache_age_seconds{kind="nodes"}')
        assert age is not None
        assert age > 15
    finally:
        podman("unpause", controller)
    measured.wait_for("it answers again", "cellblock_slurmctld_up", 1)
    assert measured.value("slurm_nodes") == 2


@pytest.mark.others_at_night
def test_the_jail_is_told(measured: Measured) -> None:
    assert measured.value("cellblock_jail_ready") == 1
    when = measured.value("cellblock_jail_image_timestamp_seconds")
    assert when is not None
    assert 0 <= time.time() - when < 86400
    (line,) = [line for line in measured.page().splitlines() if line.startswith("cellblock_jail_image_info{")]
    assert f'release="{measured.cluster.status.release}"' in line


def test_steps_are_counted_by_node_and_reason(measured: Measured) -> None:
    cluster = measured.cluster
    cluster.add_user("ada")
    entered = 'cellblock_steps_entered_total{node="cpu-1"}'
    failed = 'cellblock_steps_failed_total{node="cpu-1",reason="jail"}'

    def on_node(sample: str) -> int:
        lines = cluster.on("cpu-1", "jail-node-counters").ok().splitlines()
        (value,) = [line.split()[1] for line in lines if line.split()[0] == sample]
        return int(value)

    before = on_node("cellblock_steps_entered_total"), on_node('cellblock_steps_failed_total{reason="jail"}')
    step = ("srun", "-D/", "-n2", "--overcommit", "-w", "cpu-1", "true")
    for _ in range(3):
        cluster.client(*step, user="ada").ok()
    waits = submit(cluster, "ada", "true", "--hold", "-D/", "-o/dev/null", "-w", "cpu-1")
    # As root inside could, and as others then find it.
    place, away = cluster.root / "sys", cluster.root / "sys.away"
    place.rename(away)
    try:
        cluster.on("controller", "scontrol", "release", waits).ok()
        cluster.wait_until("it is counted", lambda: (measured.value(failed) or 0) > before[1])
    finally:
        away.rename(place)
    cluster.on("controller", "scancel", waits).ok()
    measured.wait_for("the others, too", entered, before[0] + 3)
    assert not measured.value('cellblock_steps_failed_total{node="cpu-1",reason="node"}')
    # Users do not reach what is counted by.
    assert cluster.jail("ls", "/run/cellblock/node-counters", user="ada").status


@pytest.mark.others_at_night
def test_the_exporter_has_no_right_that_it_does_not_need(measured: Measured) -> None:
    cluster = measured.cluster
    find = "grep -l -x python3 /proc/[0-9]*/comm | while read f; do cat ${f%/comm}/status; done"
    status = cluster.on("metrics", "sh", "-c", find).ok()
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    assert fields["Uid"].split() == [str(_METRICS_UID)] * 4
    for capabilities in ("CapPrm", "CapEff", "CapBnd", "CapAmb", "CapInh"):
        assert int(fields[capabilities], 16) == 0, capabilities
    assert fields["NoNewPrivs"].strip() == "1"
    become = ("setpriv", "--reuid=metrics", "--regid=metrics", "--clear-groups", "--bounding-set=-all")
    key = "/run/secrets/cellblock/munge.key"
    for secret in ("/etc/munge/munge.key", key, "/mnt/jail-records/state.json"):
        assert cluster.on("metrics", *become, "cat", secret).status != 0, secret
    if measured.own_endpoints:
        # No key, no munged, no configuration: slurmctld answers whoever reaches it.
        for path in ("/etc/munge/munge.key", key, "/run/munge/munge.socket.2"):
            assert cluster.on("metrics", "test", "-e", path).status != 0, path
    else:
        # slurmctld answers its questions, and takes no job of it and no change.
        assert cluster.on("metrics", *become, "squeue").status == 0
        assert cluster.on("metrics", *become, "srun", "-D/", "true").status != 0
        change = ("scontrol", "update", "node=cpu-1", "state=drain", "reason=none")
        assert cluster.on("metrics", *become, *change).status != 0
