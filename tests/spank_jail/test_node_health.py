# SPDX-License-Identifier: Apache-2.0
"""node-health: verdicts, strikes and passes, limits, whose programs are run."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.documented import blocks_for
from tests.spank_jail.node_health import Node
from tests.spank_jail.test_c_units import build, make, tools
from tests.spank_jail.waiting import wait_until

__all__ = ["build", "tools"]  # fixtures

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as node-health does")


@pytest.fixture
def node(build: Path, tmp_path: Path) -> Node:
    done = make(build, "node")
    assert done.returncode == 0, done.stdout + done.stderr
    made = Node(tmp_path, build).make()
    made.configure()
    return made


def test_without_a_configuration_nothing_runs(node: Node) -> None:
    node.table("check one")
    node.program("one", f"touch {node.base}/ran")
    (node.base / "health.conf").unlink()
    done = node.health()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (node.base / "ran").exists()


@pytest.mark.parametrize(
    ("script", "verdict", "text"),
    [
        ("echo fine", "passed", "fine"),
        ("echo it is broken; echo more; exit 1", "failed", "it is broken"),
        ("exit 1", "could not run", "it failed and gave no reason"),
        ("echo no tool; exit 2", "could not run", "no tool"),
        ("none-such-tool", "could not run", "exit status 127"),
        ("kill -SEGV $$", "could not run", "signal 11 ended it"),
        ("sleep 60", "could not run", "no end after 1 s"),
        ("trap '' TERM; sleep 60 & sleep 60; exit 1", "could not run", "no end after 1 s"),
        ("head -c 1000000 /dev/zero | tr '\\0' x; exit 1", "failed", "x" * 239),
        (r"""printf 'a\033[31mb\tc "d"\n'; exit 1""", "failed", "a?[31mb?c 'd'"),
    ],
)
def test_verdicts(node: Node, script: str, verdict: str, text: str) -> None:
    node.table("check one limit=1 strikes=1/1")
    node.program("one", script)
    shown = node.turn()["one"]
    assert (shown["verdict"], shown["text"]) == (verdict, text)
    # What could not run is no failure, however often.
    node.turn()
    assert node.shown()["one"]["sick"] is (verdict == "failed")


def test_programs_that_are_not_there(node: Node) -> None:
    node.table("check one\ncheck two")
    node.program("two", "exit 0")
    (node.base / "checks/two").write_text("#!/no/such/interpreter\n")
    shown = node.turn()
    assert shown["one"]["verdict"] == shown["two"]["verdict"] == "could not run"
    assert "cannot be run: No such file" in shown["two"]["text"]


def test_strikes_and_passes(node: Node) -> None:
    """F: it fails; P: it passes; C: it could not run, which counts for neither"""
    node.table("check one strikes=2/3 passes=2")
    node.program("one", f"read -r status < {node.base}/status; echo why; exit $status")
    sick = {}
    turns = "FPPFCPFPCFPPP"
    for number, letter in enumerate(turns):
        (node.base / "status").write_text(f"{'PFC'.index(letter)}\n")
        sick[number] = node.turn()["one"]["sick"]
    assert "".join("01"[sick[number]] for number in range(len(turns))) == "0000001111100"


def test_limits_hold_side_by_side(node: Node) -> None:
    names = ["one", "two", "three", "four"]
    node.table("".join(f"check {name} limit=2\n" for name in names))
    for name in names:
        node.program(name, "sleep 60")
    started = time.monotonic()
    assert {one["verdict"] for one in node.turn().values()} == {"could not run"}
    assert time.monotonic() - started < 7


def test_a_check_that_takes_longer_than_a_turn(node: Node) -> None:
    node.table("check long limit=50 strikes=1/1")
    node.program("long", f"until [ -e {node.base}/end ]; do sleep 0.05; done; echo too slow; exit 1")
    started = time.monotonic()
    assert node.turn()["long"]["verdict"] == "no verdict yet"
    assert node.turn()["long"]["verdict"] == "no verdict yet"
    assert time.monotonic() - started < 20
    (node.base / "end").touch()
    wait_until(lambda: node.turn()["long"]["verdict"] == "failed")
    assert node.shown()["long"]["sick"]


def test_a_check_that_passed_is_left_out_for_a_while(node: Node) -> None:
    node.table("check one every=3600")
    node.program("one", f"echo x >> {node.base}/runs; [ ! -e {node.base}/bad ] || {{ echo bad; exit 1; }}")
    (node.base / "bad").touch()
    node.turn()
    node.turn()
    (node.base / "bad").unlink()
    node.turn()
    node.turn()
    assert (node.base / "runs").read_text() == "x\n" * 3


def test_before_a_job_one_failure_suffices(node: Node) -> None:
    node.table("check one strikes=3/5 prolog=yes\ncheck two strikes=3/5")
    for name in ("one", "two"):
        node.program(name, f"echo {name} >> {node.base}/runs; echo broken; exit 1")
    assert not any(one["sick"] for one in node.turn("--prolog").values() if one["check"] == "two")
    assert node.shown()["one"]["sick"]
    assert (node.base / "runs").read_text() == "one\n"


def test_before_the_node_registers_each_check_has_its_strikes(node: Node) -> None:
    node.table("check one strikes=2/3\ncheck flaky strikes=3/3\ncheck late limit=100")
    node.program("one", "echo broken; exit 1")
    node.program("late", "exit 1")
    node.program("flaky", f"[ -e {node.base}/again ] || {{ touch {node.base}/again; echo busy; exit 1; }}")
    said = node.health("--start").stdout
    assert said.startswith("[cellblock:one] broken, instance ")
    assert node.shown()["flaky"]["verdict"] == "passed"
    assert not node.shown()["flaky"]["sick"]
    node.program("one", "exit 0")
    again = Node(node.base, node.programs, "node-2")
    assert again.health("--start").stdout == ""


def test_the_cluster_and_the_site_change_checks(node: Node) -> None:
    node.table("check one strikes=3/5 full=95\ncheck two\ncheck three")
    for name in ("one", "two", "three"):
        node.program(name, 'echo "$@"')
    node.program("three", "echo the site has another; exit 1", "site")
    node.program("four", "echo a site of its own; exit 1", "site")
    (node.base / "site/checks.conf").write_text("check four strikes=1/1 action=warn\n")
    node.configure(
        f"budget least=1 percent=0 within=60\nfolder {node.base}/site\n"
        "check one full=90 more=1\ncheck two off\ncheck three strikes=1/1"
    )
    shown = node.turn()
    assert set(shown) == {"one", "three", "four"}
    assert shown["one"]["text"] == "full=90 more=1"
    assert shown["three"]["text"] == "the site has another"
    assert shown["four"]["action"] == "warn"
    assert all(shown[name]["sick"] for name in ("three", "four"))


@pytest.mark.parametrize(
    "line",
    [
        "check",
        "check One",
        "check ../x",
        "check one strikes=5/3",
        "check one strikes=3/33",
        "check one limit=0",
        "check one passes=-1",
        "check one action=reboot",
        "check one word",
        "budget most=1",
        "budget percent=101",
        "folder here",
        "folders /x",
    ],
)
def test_lines_that_are_wrong(node: Node, line: str) -> None:
    node.table("check one")
    node.configure(f"\n# here\n{line}\n")
    done = node.health()
    assert done.returncode == 1
    assert f"{node.base}/health.conf:3: " in done.stderr


@pytest.mark.parametrize("what", ["checks", "site", "health.conf"])
def test_what_others_than_root_can_write_is_not_run(node: Node, what: str) -> None:
    node.table("check one")
    node.program("one", f"touch {node.base}/ran")
    node.program("two", f"touch {node.base}/ran", "site")
    node.configure(f"folder {node.base}/site")
    (node.base / what).chmod(0o777)
    done = node.health()
    assert done.returncode == 1
    assert str(node.base / what) in done.stderr
    # A prolog that fails drains the node, and all nodes have this mistake.
    before_a_job = node.health("--prolog")
    assert (before_a_job.returncode, before_a_job.stderr) == (0, done.stderr)
    assert not (node.base / "ran").exists()


def test_a_program_that_others_than_root_can_write_is_not_run(node: Node) -> None:
    """its own mode and owner, and those of what it is a link to; others are run all the same"""
    node.table("check one")
    node.configure(f"folder {node.base}/site")
    node.program("one", "exit 0")
    home = node.base / "home"
    home.mkdir()
    os.chown(home, 12345, 12345)
    for name in ("users", "everybodys", "theirs"):
        node.program(name, f"touch {node.base}/ran", "site" if name != "theirs" else "home")
    os.chown(node.base / "site/users", 12345, 12345)
    (node.base / "site/everybodys").chmod(0o757)
    (node.base / "site/theirs").symlink_to(home / "theirs")
    shown = node.turn()
    assert not (node.base / "ran").exists()
    assert {shown[name]["verdict"] for name in ("users", "everybodys", "theirs")} == {"could not run"}
    assert "belongs to uid 12345" in shown["users"]["text"]
    assert shown["one"]["verdict"] == "passed"


def test_a_check_of_a_sites_own(node: Node) -> None:
    """as docs/health.md shows it"""
    program, table = blocks_for("health.md", "test_a_check_of_a_sites_own")
    worn = node.base / "worn"
    node.table("")
    node.program("nvme-wear", program.text.replace("/run/site/nvme-percentage-used", str(worn)), "site")
    (node.base / "site/checks.conf").write_text(table.text)
    node.configure(f"folder {node.base}/site")
    shown = node.turn()["nvme-wear"]
    assert (shown["verdict"], shown["sick"]) == ("could not run", False)
    worn.write_text("96\n")
    shown = node.turn()["nvme-wear"]
    assert (shown["verdict"], shown["text"], shown["sick"]) == ("failed", "the disk is worn by 96 %", True)


def test_the_metrics(node: Node) -> None:
    node.table("check one strikes=1/1\ncheck two\ncheck three\ncheck four limit=100")
    node.program("one", "echo broken; exit 1")
    node.program("two", "exit 0")
    node.program("three", "exit 3")
    node.program("four", "sleep 2")
    node.turn()
    assert (node.base / "state/node-1/metrics").read_text().splitlines() == [
        'cellblock_health_verdict{check="one"} 1',
        'cellblock_health_sick{check="one"} 1',
        'cellblock_health_verdict{check="two"} 0',
        'cellblock_health_verdict{check="three"} 2',
        'cellblock_health_verdict{check="four"} 3',
    ]


def test_what_was_remembered_and_is_damaged_is_forgotten(node: Node) -> None:
    node.table("check one strikes=1/1")
    node.program("one", "echo broken; exit 1")
    node.turn()
    for text in (b"\0\1\2", b"one X 9 9 9 9 FFFFXQ text\n", b"one F 1 0 0 0 " + b"F" * 400, b"x" * 100_000):
        (node.base / "state/node-1/state").write_bytes(text)
        assert node.turn()["one"]["history"] == "F"


def test_a_node_is_named_by_slurm(node: Node) -> None:
    node.table("check one")
    for name in ("../x", "", "a b", ".hidden"):
        assert Node(node.base, node.programs, name).health().returncode == 2
