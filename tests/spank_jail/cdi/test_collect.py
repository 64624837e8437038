# SPDX-License-Identifier: Apache-2.0
"""jail-driver collect: a node's driver becomes a directory, which jobs see as /usr/local/nvidia."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.spank_jail.cdi.driver import Driver, install, library, snapshot
from tests.spank_jail.cdi.nodes import DIRECTORY, Node, by_cdi, injected, running, write_plan
from tests.spank_jail.conftest import Jail
from tests.spank_jail.test_c_units import make

ROUNDS = int(os.environ.get("CELLBLOCK_LDCONFIG_ROUNDS", "25"))
"""How often each node runs ldconfig while the others do; 1000 for the full test."""

STUB = "100"
"""What the stub's cuInit answers: CUDA_ERROR_NO_DEVICE."""

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="mounts on nodes, and trusts root's files: needs root"
)

NewNode = Callable[[], Node]


@pytest.fixture(scope="module")
def programs(build: Path) -> Path:
    done = make(build, "jail-enter", "jail-driver")
    assert done.returncode == 0, done.stderr
    return build


@pytest.fixture
def new_node(system: Jail, programs: Path, tmp_path: Path) -> Iterator[NewNode]:
    write_plan(system.plan, system.root)
    empty = tmp_path / "empty"
    empty.mkdir()
    with ExitStack() as stack:
        yield lambda: stack.enter_context(running(programs, system.root, system.plan, empty))


@pytest.fixture
def node(new_node: NewNode) -> Node:
    return new_node()


@pytest.fixture
def newer(jail: Jail) -> Driver:
    return install(jail.base, "570.1.2")


@pytest.mark.parametrize("found", [by_cdi, injected])
def test_a_job_finds_the_driver_that_was_collected(
    node: Node, driver: Driver, found: Callable[[Driver], tuple[str | Path, ...]]
) -> None:
    done = node.collect(*found(driver))
    assert done.returncode == 0, done.stderr
    assert f"driver {driver.version} from" in done.stdout
    assert node.listing() == ["bin", "driver.json", "lib64"]
    assert node.listing("current/bin") == ["nvidia-smi"]
    assert {"libcuda.so.1", "libnvcuvid.so.1"} <= set(node.listing("current/lib64"))
    assert node.loaded() == "535"


def test_specifications_of_every_version_in_yaml_and_json(node: Node, driver: Driver) -> None:
    """Devices, variables and links below /dev come along: the plan's line shows them."""
    for number, version in enumerate(("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0")):
        spec = {**driver.spec(), "cdiVersion": version}
        (driver.specs / "nvidia.yaml").unlink(missing_ok=True)
        name = "nvidia.json" if number % 2 else "nvidia.yaml"
        (driver.specs / "nvidia.json").unlink(missing_ok=True)
        driver.write(json.dumps(spec) if number % 2 else spec, name)
        assert node.collect(*by_cdi(driver)).returncode == 0
    script = "echo $DRIVER; head -c 4 /dev/nvidia0 | wc -c; readlink /dev/dri/by-path/*; nvidia-smi"
    path = "PATH=/usr/bin:/usr/local/nvidia/bin"
    done = subprocess.run(
        node.inside("/usr/bin/env", path, "sh", "-c", script), capture_output=True, text=True
    )
    assert done.stdout.split() == [driver.version, "4", "../card1", "driver", driver.version], done.stderr


def test_a_node_without_a_driver_has_an_empty_directory_and_the_stubs(node: Node) -> None:
    done = node.collect()
    assert (done.returncode, done.stderr) == (0, "")
    assert "no GPU driver on this node" in done.stdout
    assert node.listing() == []
    assert node.loaded() == STUB


def test_every_node_loads_its_own_driver_while_all_run_ldconfig(
    new_node: NewNode, system: Jail, driver: Driver, newer: Driver
) -> None:
    nodes = {"535": new_node(), "570": new_node(), STUB: new_node()}
    for answer, options in (("535", by_cdi(driver)), ("570", injected(newer)), (STUB, ())):
        assert nodes[answer].collect(*options).returncode == 0
    # A job each, on three nodes of one volume; what one of them writes is what all of them read.
    script = """
        i=0
        while [ $i -lt $2 ]; do
            i=$((i + 1))
            /sbin/ldconfig || exit 2
            found=$(/data/program) || exit 3
            [ "$found" = "$1" ] || { echo "round $i: $found"; exit 4; }
        done
    """
    jobs = {
        answer: subprocess.Popen(
            node.inside("/usr/bin/sh", "-c", script, "job", answer, str(ROUNDS)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for answer, node in nodes.items()
    }
    for answer, job in jobs.items():
        out, error = job.communicate(timeout=60 + ROUNDS)
        assert job.returncode == 0, (answer, out, error)
    assert [path.name for path in (system.root / "etc").glob("ld.so.cache*")] == ["ld.so.cache"]
    listed = subprocess.run(
        ["ldconfig", "-p", "-C", str(system.root / "etc/ld.so.cache")], capture_output=True, text=True
    ).stdout
    assert "/usr/local/nvidia/lib64/libcuda.so.1" in listed


def test_running_jobs_keep_the_driver_that_they_started_with(
    node: Node, driver: Driver, newer: Driver, system: Jail
) -> None:
    node.collect(*by_cdi(driver))
    script = "until [ -e /data/go ]; do sleep 0.05; done; /data/program; ls /usr/local/nvidia/lib64 | wc -l"
    waiting = subprocess.Popen(node.inside("/usr/bin/sh", "-c", script), stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while "jail-enter" in Path(f"/proc/{waiting.pid}/cmdline").read_text():
        assert time.monotonic() < deadline, "the job does not start"
        time.sleep(0.02)
    names = len(node.listing("current/lib64"))
    # Twice: the directory of the job's driver is no longer mounted on the node then.
    for options in (by_cdi(newer), ()):
        assert node.collect(*options).returncode == 0
    shutil.rmtree(driver.files)
    assert "/1 " not in node.run("cat", "/proc/self/mountinfo").stdout.replace(
        f"{DIRECTORY}/1/", f"{DIRECTORY}/1 "
    )
    assert node.loaded() == STUB
    (system.root / "data/go").touch()
    out, _ = waiting.communicate(timeout=60)
    assert out.split() == ["535", str(names)]


def test_sessions_in_a_namespace_of_before_see_the_new_driver(
    node: Node, driver: Driver, newer: Driver
) -> None:
    """sshd has a mount namespace of its own, made when the node started."""
    node.collect(*by_cdi(driver))
    command = node.command("unshare", "--mount", "--propagation", "slave", "sleep", "600")
    with subprocess.Popen(command) as sshd:
        try:
            deadline = time.monotonic() + 60
            while Path(f"/proc/{sshd.pid}/comm").read_text() != "sleep\n":
                assert time.monotonic() < deadline, "it has no namespace yet"
                time.sleep(0.02)
            session = Node(sshd.pid, node.programs, node.root, node.plan, node.empty)
            assert session.loaded() == "535"
            node.collect(*by_cdi(newer))
            assert (session.loaded(), node.loaded()) == ("570", "570")
        finally:
            sshd.kill()


def test_collecting_again_changes_nothing(node: Node, driver: Driver, newer: Driver) -> None:
    node.collect(*by_cdi(driver))
    first = node.generation()
    assert "(unchanged)" in node.collect(*by_cdi(driver)).stdout
    assert node.generation() == first
    node.collect(*by_cdi(newer))
    assert node.generation() != first
    # Gone again once nothing can be about to read it.
    node.collect(*by_cdi(newer))
    assert node.listing("") == sorted([node.generation(), "current"])


def test_a_driver_that_was_replaced_under_the_same_name_is_collected_anew(node: Node, driver: Driver) -> None:
    node.collect(*by_cdi(driver))
    cuda = driver.files / f"libcuda.so.{driver.version}"
    cuda.unlink()
    library(cuda, "libcuda.so.1", "int cuInit(unsigned f) { return 536; }")
    assert "(made)" in node.collect(*by_cdi(driver)).stdout
    assert node.loaded() == "536"


def test_what_is_damaged_is_made_again(node: Node, driver: Driver) -> None:
    node.collect(*by_cdi(driver))
    node.run("umount", f"{DIRECTORY}/{node.generation()}/lib64/libcuda.so.{driver.version}")
    assert "(made)" in node.collect(*by_cdi(driver)).stdout
    assert node.loaded() == "535"


def test_nothing_is_written_to_the_volume(node: Node, driver: Driver, system: Jail) -> None:
    before = snapshot(system.root)
    node.collect(*by_cdi(driver))
    assert node.loaded() == "535"
    assert snapshot(system.root) == before


def test_names_that_only_the_jail_knows_stay_in_its_cache(node: Node, driver: Driver, system: Jail) -> None:
    stubs = system.root / "usr/local/nvidia/lib64"
    library(stubs / "libnvidia-new.so.7", "libnvidia-new.so.7", "")
    (stubs / "libnvidia-link.so.1").symlink_to("/etc/shadow")
    (stubs / "lib$(reboot).so.1").write_text("")
    node.collect(*by_cdi(driver))
    names = node.listing("current/lib64")
    assert "libnvidia-new.so.7" in names
    assert not {"libnvidia-link.so.1", "lib$(reboot).so.1"} & set(names)
    done = subprocess.run(
        node.inside("/usr/bin/sh", "-c", "/sbin/ldconfig && /sbin/ldconfig -p"),
        capture_output=True,
        text=True,
    )
    assert "libnvidia-new.so.7" in done.stdout, done.stderr


def test_killed_at_any_moment_the_old_or_the_new_driver_is_there(
    node: Node, driver: Driver, newer: Driver
) -> None:
    node.collect(*by_cdi(driver))
    began = time.monotonic()
    node.collect(*by_cdi(newer))
    whole = time.monotonic() - began
    answers: set[str] = set()
    # Later and later: on a machine that became slower meanwhile, too, some come to their end.
    for attempt in range(300):
        if attempt >= 30 and answers == {"535", "570"}:
            break
        chosen = driver if attempt % 2 else newer
        command = [node.programs / "jail-driver", "collect", "--jail", node.root, *by_cdi(chosen)]
        process = subprocess.Popen(
            node.command(*command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(whole * attempt / 30)
        process.send_signal(signal.SIGKILL)
        process.wait()
        answers.add(node.loaded())
    assert answers == {"535", "570"}
    node.collect(*by_cdi(driver))
    node.collect(*by_cdi(driver))
    assert node.loaded() == "535"
    assert node.listing("") == sorted([node.generation(), "current"])


def test_many_at_once_make_one(new_node: NewNode, driver: Driver) -> None:
    """On nodes that have no directory yet, too: one of them mounts it."""
    for node in (new_node() for _ in range(20)):
        with ThreadPoolExecutor(8) as pool:
            done = list(pool.map(lambda _, node=node: node.collect(*by_cdi(driver)), range(8)))
        assert [one.returncode for one in done] == [0] * 8, done
        assert sum("(made)" in one.stdout for one in done) == 1, done
        assert len(node.run("findmnt", "--noheadings", "--list", DIRECTORY).stdout.splitlines()) == 1


def broken(driver: Driver, newer: Driver, case: str) -> tuple[str | Path, ...]:
    """Prepares a mistake; the options to run into it."""
    cuda = driver.files / f"libcuda.so.{driver.version}"
    files = driver.files
    if case == "json":
        driver.write('{"cdiVersion": "0.5.0", "kind": ', "broken.json")
    elif case == "missing file":
        cuda.unlink()
    elif case == "dots":
        spec = driver.spec()
        spec["containerEdits"]["mounts"][0]["hostPath"] = f"{files}/../{files.name}/{cuda.name}"
        driver.write(spec)
    elif case == "newline":
        strange = files / "libnvidia-a\nb.so.1"
        shutil.copy(cuda, strange)
        return injected(driver)
    elif case == "loop":
        (files / "libnvidia-a.so").symlink_to("libnvidia-b.so")
        (files / "libnvidia-b.so").symlink_to("libnvidia-a.so")
        return injected(driver)
    elif case == "two versions":
        library(files / "libnvidia-ml.so.570.1.2", "libnvidia-ml.so.1", "")
        return injected(driver)
    elif case == "one name twice":
        library(files / "more/libcuda.so.535.54.03", "libcuda.so.1", "")
        return (*injected(driver), "--libraries", files / "more")
    elif case == "one soname twice":
        shutil.copy(cuda, files / "libcuda.so.copy")
        return injected(driver)
    elif case == "two files for a device":
        driver.write(driver.spec(), "again.yaml")
    elif case == "two vendors":
        spec = {**newer.spec(), "kind": "amd.com/gpu"}
        driver.write(spec, "amd.yaml")
        return (*by_cdi(driver), "--device", "nvidia.com/gpu=all", "--device", "amd.com/gpu=all")
    elif case == "no such device":
        return (*by_cdi(driver), "--device", "nvidia.com/gpu=7")
    elif case == "no name":
        return (*by_cdi(driver), "--device", "nvidia")
    elif case == "written by others":
        (driver.specs / "nvidia.yaml").chmod(0o666)
    return by_cdi(driver)


MISTAKES = {
    "json": "broken.json:2: nvidia.com/gpu=all: this is neither YAML nor JSON",
    "missing file": "is missing on this node: write the CDI specification anew",
    "dots": 'must not contain ".."',
    "newline": "a name of at most 255 bytes without slashes and control characters",
    "loop": "ELOOP): cannot follow it to a file of the driver; remove or repair the link",
    "two versions": "a driver is of one version; remove the rest of the other one",
    "one name twice": "has the same name and is another file: which of them is this node's driver?",
    "one soname twice": "is libcuda.so.1, too: which of them is this node's driver? Remove one",
    "two files for a device": "define this device; remove it from one of them",
    "two vendors": "is another file: which of them is this node's driver?",
    "no such device": "of its kind there are: 0, all",
    "no name": "vendor/class=device",
    "written by others": "must be writable by root alone",
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_named_and_the_old_directory_stays(
    node: Node, driver: Driver, newer: Driver, case: str
) -> None:
    node.collect(*by_cdi(newer))
    before = node.generation(), node.listing("current/lib64")
    done = node.collect(*broken(driver, newer, case))
    assert done.returncode == 1, done.stdout
    assert done.stderr.startswith("jail-driver: ")
    assert MISTAKES[case] in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (node.generation(), node.listing("current/lib64")) == before
    assert node.loaded() == "570"


@pytest.mark.parametrize("inodes", [3, 4])
def test_no_space_is_named_and_the_old_stays(node: Node, driver: Driver, newer: Driver, inodes: int) -> None:
    node.run("mkdir", "-p", DIRECTORY)
    # Room for one generation and its link, and for another one without.
    node.run("mount", "-t", "tmpfs", "-o", f"nr_inodes={inodes},mode=755", "tmpfs", DIRECTORY)
    assert node.collect(*by_cdi(newer)).returncode == 0
    done = node.collect(*by_cdi(driver))
    assert done.returncode == 1
    assert "ENOSPC" in done.stderr
    assert f"{DIRECTORY}/2" in done.stderr
    assert node.loaded() == "570"


def test_leftovers_of_a_runtime_are_left_out(node: Node, driver: Driver) -> None:
    """Empty files where another version was mounted before, and links that lead nowhere."""
    (driver.files / "libcuda.so.470.1.1").touch()
    (driver.files / "libnvidia-old.so.1").symlink_to("libnvidia-old.so.470.1.1")
    (driver.files / "libnvidia-text.so.1").write_text("no library")
    (driver.files / "libnvidia-container.so.1").write_bytes(
        (driver.files / "libcuda.so.535.54.03").read_bytes()
    )
    done = node.collect(*injected(driver))
    assert done.returncode == 0, done.stderr
    assert f"{driver.files}/libnvidia-old.so.1: left out: it leads nowhere" in done.stderr
    assert "libnvidia-text.so.1: left out: no shared library for this kind of processor" in done.stderr
    assert "1 files in" not in done.stdout
    assert node.loaded() == "535"


def test_devices_without_a_driver_are_told(node: Node, tmp_path: Path) -> None:
    os.mknod(tmp_path / "nvidia0", 0o20666, os.makedev(1, 3))
    done = node.collect("--dev", tmp_path)
    assert done.returncode == 0
    assert "such as " in done.stderr
    assert "but no library of a driver" in done.stderr
    assert node.listing() == []


def test_show_and_usage(node: Node, driver: Driver) -> None:
    program = node.programs / "jail-driver"
    nothing = node.run(program, "show")
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert "run jail-driver collect" in nothing.stderr
    node.collect(*by_cdi(driver))
    assert f"lib64/libcuda.so.{driver.version} {driver.files}" in node.run(program, "show").stdout
    for wrong in (
        [],
        ["remove"],
        ["collect", "more"],
        ["collect", "--jail", "x"],
        ["collect", "--dev", "/a/../b"],
    ):
        done = node.run(program, *wrong)
        assert done.returncode == 2
        assert "see jail-driver --help" in done.stderr
