# SPDX-License-Identifier: Apache-2.0
"""The exporter: what it reads, what it asks, and what it says when slurmctld does not answer."""

from __future__ import annotations

import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cellblock_exporter import hostlist, jobs, nodes, tres
from cellblock_exporter.commands import run
from cellblock_exporter.exposition import Text
from cellblock_exporter.jail import write_jail, write_nothing
from cellblock_exporter.openmetrics import OpenMetrics, passed_on
from cellblock_exporter.poller import Poller
from cellblock_exporter.server import MOST_CONNECTIONS, Server
from cellblock_exporter.source import AskError, Source

# Milliseconds that a scrape may take with 2,000 nodes (docs/metrics.md).
_SCRAPE_MS = 100
_NODE = (
    "NodeName={name} Arch=x86_64 CPUAlloc=2 CPUEfctv=62 CPUTot=64 Gres=gpu:a100:4(S:0-1) "
    "GresUsed=gpu:a100:1(IDX:0) OS=Linux 6 RealMemory=1000 AllocMem=500 FreeMem=100 MemSpecLimit=100 "
    "State=MIXED+DRAIN+DYNAMIC_NORM Partitions=main,big CfgTRES=cpu=64,mem=1000M AllocTRES=cpu=2,mem=500M "
    "Comment=State=IDLE Reason=CPUTot=9 [root@2026-11-24T08:00:00]"
)


class Recorded:
    """A source that answers as told, and counts how often it is asked."""

    name = "recorded"
    kinds = ("nodes", "jobs")

    def __init__(self, answer: Callable[[str], bytes]) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def ask(self, kind: str, timeout_s: float) -> bytes:
        self.asked.append(kind)
        return self.answer(kind)


@pytest.fixture
def serve() -> Iterator[Callable[[Poller], str]]:
    """Serve a poller's page; gives its address."""
    servers: list[Server] = []

    def start(poller: Poller) -> str:
        servers.append(Server(("127.0.0.1", 0), poller.page))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_address[1]}/metrics"

    yield start
    for one in servers:
        one.shutdown()
        one.server_close()


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return bytes(answer.read())


def value(page: bytes, sample: str) -> float:
    (line,) = [line for line in page.decode().splitlines() if line.startswith(f"{sample} ")]
    return float(line.rpartition(" ")[2])


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", set()),
        ("(null)", set()),
        ("login", {"login"}),
        ("gpu-[1-3,07],login", {"gpu-1", "gpu-2", "gpu-3", "gpu-07", "login"}),
        ("r[1-2]n[08-09]-ib", {"r1n08-ib", "r1n09-ib", "r2n08-ib", "r2n09-ib"}),
    ],
)
def test_lists_of_hosts(text: str, hosts: set[str]) -> None:
    assert hostlist.expand(text) == hosts


@pytest.mark.parametrize("text", ["a[1-99999999]", "a[1-5000]b[1-5000]", "a[x]"])
def test_a_list_of_hosts_that_is_none_or_has_no_end_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host"):
        hostlist.expand(text)


def test_resources_are_in_base_units() -> None:
    assert tres.parse("cpu=2,mem=1.5G,node=1,gres/gpu=4") == {
        "cpu": 2,
        "mem": 1536 * 2**20,
        "node": 1,
        "gres/gpu": 4,
    }
    assert tres.gpus({"gres/gpu": 3}, "gpu:8") == 3
    assert tres.gpus({}, "gpu:a100:4(S:0-1),gpu:2,shard:9") == 6


def test_a_node_is_what_slurm_says_and_not_what_people_write_of_it() -> None:
    (node,) = nodes.read(_NODE.format(name="gpu-1"))
    assert node.states == {"MIXED", "DRAIN", "DYNAMIC_NORM"}
    assert (node.cpus, node.cpus_effective, node.cpus_alloc) == (64, 62, 2)
    assert (node.gpus, node.gpus_alloc) == (4, 1)
    assert (node.memory, node.memory_effective) == (1000 * 2**20, 900 * 2**20)
    assert node.draining
    assert not node.drained
    assert node.partitions == ("main", "big")


def test_jobs_are_counted_and_nodes_that_share_jobs_once() -> None:
    lines = (
        "RUNNING|ada|users|main|4|2|2|cpu=4,mem=10M,node=2,gres/gpu=1|1|None|cpu-[1-2]|\n"
        "RUNNING|ada|users|main|1|1|1|cpu=1,mem=1M,node=1|1|None|cpu-2|\n"
        "PENDING|bob|(null)|main,big|2|3-4|5|cpu=2,mem=5M|0|JobHeldUser||\n"
        "COMPLETING|bob|users|main|2|1|1|cpu=2,mem=5M|1|None|cpu-3|\n"
    )
    counted = jobs.count(jobs.read(lines, "|"))
    assert {name: number for name, number in counted.items() if number} == {
        "running": 2,
        "started": 3,
        "finished": 1,
        "completing": 1,
        "pending": 1,
        "hold": 1,
        "cpus_alloc": 7,
        "gpus_alloc": 1,
        "memory_alloc": 16 * 2**20,
        "nodes_alloc": 3,
    }
    with pytest.raises(ValueError, match="fields"):
        jobs.read("RUNNING|a|b\n", "|")


def test_an_account_is_any_text_and_hides_no_jobs() -> None:
    """Without a database slurmctld takes what the user writes."""
    mark = "|0f|"
    fields = ("RUNNING", "eve", "a|b\nc|x   ", "main", "1", "1", "1", "cpu=1", "1", "None", "cpu-1")
    text = "".join(f"{field}{mark}" for field in fields) + "\n"
    first, second = jobs.read(text + text, mark)
    assert (first.user, first.account, first.nodes) == ("eve", "a|b\nc|x", {"cpu-1"})
    assert first == second
    assert f"Account:64{mark}" in jobs.command(mark)[-1]


def test_accounts_of_a_users_making_do_not_fill_prometheus() -> None:
    """Each would be three dozen series, as long as Prometheus keeps them: those with most jobs are told."""
    mark = "|0f|"
    fields = ("PENDING", "eve", "{}", "main", "1", "1", "1", "", "1", "None", "")
    job = "".join(f"{field}{mark}" for field in fields) + "\n"
    text = Text()
    listed = "".join(job.format(f"account-{number}") for number in range(1500)) + 2 * job.format("physics")
    jobs.write(text, jobs.read(listed, mark))
    told = re.findall(r'^slurm_account_jobs\{account="(.*)"\} (.*)$', text.encode().decode(), re.MULTILINE)
    assert len(told) == 1000
    assert ("physics", "2") in told
    assert "slurm_jobs 1502\n" in text.encode().decode()


def test_slurms_own_answer_is_passed_on_in_bytes_and_without_what_prometheus_cannot_read() -> None:
    body = (
        b"# HELP slurm_node_memory_bytes Total memory\n# TYPE slurm_node_memory_bytes gauge\n"
        b'slurm_node_memory_bytes{node="a"} 1000\n'
        b'slurm_user_jobs{username="b\\"c"} 3\n'
        b"slurm_jobs_memory_alloc 2\n"
        b"no line of Prometheus\n"
        b'slurm_user_jobs{username="open} 3\n'
        b'slurm_partition_nodes_mem_tot{partition="main"} 5\n'
    )
    lines = passed_on(body, in_mib=True).decode().splitlines()
    assert lines[2:] == [
        'slurm_node_memory_bytes{node="a"} 1048576000',
        'slurm_user_jobs{username="b\\"c"} 3',
        "slurm_jobs_memory_alloc 2097152",
        'slurm_partition_nodes_mem_tot{partition="main"} 5242880',
    ]
    # A release that says bytes and means them.
    assert b'{node="a"} 1000\n' in passed_on(body, in_mib=False)


def test_scrapes_ask_nothing(serve: Callable[[Poller], str]) -> None:
    source = Recorded(lambda kind: f"slurm_{kind} 1\n".encode())
    poller = Poller(source, 30, 5, write_nothing)
    url = serve(poller)
    assert value(get(url), "cellblock_slurmctld_up") == 0
    poller.ask_all()
    assert source.asked == ["nodes", "jobs"]
    threads = [threading.Thread(target=lambda: [get(url) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    page = get(url)
    assert source.asked == ["nodes", "jobs"]
    assert value(page, "slurm_jobs") == 1
    assert value(page, "cellblock_slurmctld_up") == 1
    assert value(page, 'cellblock_exporter_questions_total{kind="jobs",result="answered"}') == 1


def test_connections_that_are_left_open_keep_no_scraper_out(serve: Callable[[Poller], str]) -> None:
    """As of a job that sends a byte now and then."""
    before = threading.active_count()
    url = serve(Poller(Recorded(lambda kind: b""), 15, 1, write_nothing))
    port = int(url.split(":")[2].partition("/")[0])
    left = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    try:
        for one in left[-20:]:
            one.sendall(b"G")
        assert get(url)
        # Those that are many are ended; who came last is left.
        left[0].settimeout(5)
        assert left[0].recv(1) == b""
        # Their threads end, each in its own time; the server's own stays, and one for each that is left.
        ends = time.monotonic() + 10
        while threading.active_count() > before + 1 + MOST_CONNECTIONS and time.monotonic() < ends:
            time.sleep(0.01)
        assert threading.active_count() <= before + 1 + MOST_CONNECTIONS
    finally:
        for one in left:
            one.close()


def test_a_dead_slurmctld_is_said_and_old_figures_are_kept_back(monkeypatch: pytest.MonkeyPatch) -> None:
    alive = True

    def answer(kind: str) -> bytes:
        if not alive:
            raise AskError("refused")
        return f"slurm_{kind} 1\n".encode()

    poller = Poller(Recorded(answer), 10, 5, write_nothing)
    poller.ask_all()
    alive = False
    poller.ask_all()
    page = poller.page()
    assert value(page, "cellblock_slurmctld_up") == 0
    assert value(page, "slurm_jobs") == 1
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 36)
    page = poller.page()
    assert b"slurm_jobs 1" not in page
    assert value(page, 'cellblock_exporter_cache_age_seconds{kind="jobs"}') >= 36
    assert value(page, 'cellblock_exporter_questions_total{kind="jobs",result="failed"}') == 1


def test_a_slurmctld_that_accepts_and_says_nothing_holds_nothing_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source: Source = OpenMetrics(silent.getsockname())
        started = time.monotonic()
        with pytest.raises(AskError, match="timed out"):
            source.ask("jobs", 0.5)
        assert time.monotonic() - started < 3


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.0 500 NO\r\n\r\n", "500"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\nslurm_jobs 1\n", "cut short"),
        (b"", "not 200"),
    ],
)
def test_an_answer_that_is_not_whole_is_none(answer: bytes, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def once() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        threading.Thread(target=once, daemon=True).start()
        with pytest.raises(AskError, match=why):
            OpenMetrics(server.getsockname()).ask("jobs", 5)


def test_commands_have_a_bound() -> None:
    assert run(("echo", "yes"), 5) == "yes\n"
    with pytest.raises(AskError, match="status 3: gone"):
        run(("sh", "-c", "echo gone; exit 3"), 5)
    started = time.monotonic()
    with pytest.raises(AskError, match="not over"):
        # A child of it would hold the pipe.
        run(("sh", "-c", "sleep 60 & sleep 60"), 0.3)
    assert time.monotonic() - started < 3
    with pytest.raises(AskError, match="more than"):
        run(("yes",), 60)


def test_the_jails_records(tmp_path: Path) -> None:
    text = Text()
    write_jail(text, tmp_path)
    assert b"cellblock_jail_ready 0\n" in text.encode()
    (tmp_path / "state.json").write_text(
        '{"source": {"reference": "jail:x", "id": "sha256:1", "release": "26.05"}, "bytes": 5, "entries": 2,'
        ' "assembled_at": "2026-11-24T08:00:00+00:00"}'
    )
    (tmp_path / "transactions").write_text("12\n")
    text = Text()
    write_jail(text, tmp_path)
    page = text.encode()
    assert value(page, "cellblock_jail_ready") == 1
    assert value(page, "cellblock_jail_transactions_total") == 12
    assert value(page, "cellblock_jail_image_timestamp_seconds") == 1795507200
    assert b'{reference="jail:x",id="sha256:1",release="26.05"} 1\n' in page


def test_what_nodes_counted(tmp_path: Path) -> None:
    folder = tmp_path / "nodes"
    folder.mkdir()
    (folder / "worker-1.prom").write_text(
        'cellblock_steps_entered_total 7\ncellblock_steps_failed_total{reason="node"} 2\n'
        'cellblock_steps_entered_total{node="x"} 9\nslurm_jobs 3\ncellblock_steps_entered_total -1\n'
        'cellblock_node_drains_total{check="jail"} 1\ncellblock_image_imports_total{result="cached"} 3\n'
        'cellblock_image_imported_bytes_total{result="cached"} 3000\n'
        'cellblock_image_imports_total{job="1"} 9\n'
    )
    (folder / "worker-2.prom").write_bytes(b"\xff\n\0cellblock_steps_entered_total 1\n")
    (folder / "worker-3.prom").write_text("cellblock_steps_entered_total 4\n")
    (folder / 'a"b.prom').write_text("cellblock_steps_entered_total 5\n")
    (folder / "gone.prom").symlink_to("nowhere")
    text = Text()
    write_jail(text, tmp_path)
    counted = ("cellblock_steps", "cellblock_node", "cellblock_image")
    found = [line for line in text.encode().decode().splitlines() if line.startswith(counted)]
    assert found == [
        'cellblock_steps_entered_total{node="worker-1"} 7',
        'cellblock_steps_entered_total{node="worker-3"} 4',
        'cellblock_steps_failed_total{node="worker-1",reason="node"} 2',
        'cellblock_node_drains_total{node="worker-1",check="jail"} 1',
        'cellblock_image_imports_total{node="worker-1",result="cached"} 3',
        'cellblock_image_imported_bytes_total{node="worker-1",result="cached"} 3000',
    ]


def test_what_jobs_found_of_nodes_is_beside_what_they_found_themselves(tmp_path: Path) -> None:
    """a sample that both have, as by a node that makes one up, is there once"""
    verdict, sick = "cellblock_health_verdict", "cellblock_health_sick"
    for folder, lines in (
        ("nodes", f'{verdict}{{check="disk"}} 0\n{verdict}{{check="pair-speed"}} 0\n'),
        ("verdicts", f'{verdict}{{check="pair-speed"}} 1\n{sick}{{check="pair-speed"}} 1\n'),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "worker-1.prom").write_text(lines)
    text = Text()
    write_jail(text, tmp_path)
    found = [line for line in text.encode().decode().splitlines() if line.startswith("cellblock_health")]
    assert found == [
        'cellblock_health_verdict{node="worker-1",check="disk"} 0',
        'cellblock_health_verdict{node="worker-1",check="pair-speed"} 1',
        'cellblock_health_sick{node="worker-1",check="pair-speed"} 1',
    ]


def test_2000_nodes_are_scraped_in_time_while_slurmctld_is_asked(
    serve: Callable[[Poller], str], tmp_path: Path
) -> None:
    (tmp_path / "nodes").mkdir()
    for number in range(2000):
        (tmp_path / f"nodes/gpu-{number}.prom").write_text(
            'cellblock_steps_entered_total 7\ncellblock_steps_failed_total{reason="node"} 2\n'
        )
    looks: list[float] = []

    def further(text: Text) -> None:
        looks.append(time.monotonic())
        write_jail(text, tmp_path)

    output = "\n".join(_NODE.format(name=f"gpu-{number}") for number in range(2000))

    def answer(kind: str) -> bytes:
        text = Text()
        nodes.write(text, nodes.read(output))
        return text.encode()

    source = Recorded(answer)
    source.kinds = ("nodes",)
    poller = Poller(source, 30, 5, further)
    poller.ask_all()
    url = serve(poller)
    threading.Thread(target=lambda: [poller.ask_all() for _ in range(5)], daemon=True).start()
    times = []
    for _ in range(20):
        started = time.monotonic()
        page = get(url)
        times.append((time.monotonic() - started) * 1000)
    assert page.count(b"slurm_node_") > 20_000
    assert page.count(b"cellblock_steps_entered_total{") == 2000
    # A scrape opens no file of a node's.
    assert len(looks) == 1
    assert sorted(times)[len(times) // 2] < _SCRAPE_MS, times
