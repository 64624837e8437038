# SPDX-License-Identifier: Apache-2.0
"""build.py: what it installs, when it installs it again, and what it costs when there is nothing to do."""

from __future__ import annotations

import fcntl
import os
import re
import runpy
import shutil
import signal
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.launcher import first_answers
from cellblock.launcher import install as launcher_install
from cellblock.launcher import main as launcher
from cellblock.launcher.system_packages import (
    NEEDS,
    Missing,
    Need,
    NotOfferedError,
    interpreter_needs,
    missing,
    needs_of,
    network_need,
)
from tests.memory_disk import memory_disk

A_OR_BC = Need("is for tests", (("a",), ("b", "c")))


def test_of_alternatives_the_first_that_apt_offers_is_taken_whole() -> None:
    assert missing([A_OR_BC], [], ["a", "b", "c"]) == [Missing(("a",), "is for tests")]
    assert missing([A_OR_BC], ["b"], ["b", "c"]) == [Missing(("c",), "is for tests")]
    assert missing([A_OR_BC], ["b", "c"], ["a"]) == []


def test_what_apt_does_not_offer_is_an_error_unless_optional() -> None:
    with pytest.raises(NotOfferedError, match=r"apt offers no a or b \+ c, which is for tests"):
        missing([A_OR_BC], [], ["b"])
    assert missing([Need("", (("a",),), optional=True)], [], []) == []


@pytest.mark.parametrize(
    ("podman", "packages"),
    [
        ("3.4.4+ds1-1ubuntu1", "golang-github-containernetworking-plugin-dnsname"),
        ("4.3.1+ds1-8+deb12u1", "golang-github-containernetworking-plugin-dnsname"),
        ("4.9.3+ds1-1ubuntu0.2", "aardvark-dns"),
        ("5.4.2+ds1-2", "aardvark-dns"),
        ("1:6.0.0", "aardvark-dns"),
        ("", "aardvark-dns"),
    ],
)
def test_the_network_follows_the_version_of_podman(podman: str, packages: str) -> None:
    assert packages in network_need(podman).alternatives[0]


def test_an_interpreter_that_debian_split_gets_its_other_parts() -> None:
    lacking = interpreter_needs((3, 11), has_ensurepip=False, has_headers=False)
    assert [need.alternatives[0][0] for need in lacking] == ["python3.11-venv", "python3.11-dev"]
    assert interpreter_needs((3, 11), has_ensurepip=True, has_headers=True) == []


def test_what_builds_and_clusters_take_is_installed_in_one_go() -> None:
    assert launcher.groups_for(["doctor"]) == ["python", "compile", "core"]
    assert launcher.groups_for(["build", "worker"]) == ["python", "compile", "core"]
    assert launcher.groups_for(["docs"]) == ["python", "docs"]
    assert list(NEEDS) == launcher.ALL_GROUPS
    without = set(NEEDS) - {"kubernetes"}
    assert set(launcher.groups_for(["test", "--quick"])) == without
    assert set(launcher.groups_for(["bench", "volume"])) == without


@pytest.mark.skipif(os.geteuid() != 0, reason="the nodes of a Kubernetes need root")
def test_what_a_kubernetes_takes_is_installed_where_one_will_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELLBLOCK_KUBERNETES", str(tmp_path))
    commands = ["test"], ["test", "tests/kubernetes"], ["bench", "kubernetes"]
    assert not any("kubernetes" in launcher.groups_for(command) for command in commands)
    (tmp_path / "kubernetes").write_text("#!/bin/sh\n")
    (tmp_path / "kubernetes").chmod(0o755)
    monkeypatch.chdir(paths.PROJECT)
    assert all("kubernetes" in launcher.groups_for(command) for command in commands)
    assert "kubernetes" not in launcher.groups_for(["test", "tests/text"])


def test_tests_that_are_named_bring_what_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tests/a/test_one.py", "tests/a/test_two.py", "tests/b/test_three.py", "tests/kubernetes"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    text = "# what\ntests compile core docs test\ntests/a\ntests/a/test_two.py compile\n"
    text += "tests/kubernetes kubernetes\n"
    (tmp_path / "tests/needs.txt").write_text(text)
    monkeypatch.chdir(tmp_path)

    def groups(*args: str) -> list[str]:
        return launcher.groups_for_tests(str(tmp_path), ["test", *args])

    assert groups("tests/a/test_one.py::test_it", "-k", "it") == ["python", "unit"]
    assert groups("tests/a/test_two.py") == ["python", "compile", "unit"]
    assert groups("tests/a") == ["python", "compile", "unit"], "with what lies below"
    assert groups("tests/a/test_one.py", "tests/b") == launcher.ALL_GROUPS[:-1]
    assert groups("tests/kubernetes") == ["python", "unit", "kubernetes"]
    assert groups("tests") == groups("--quick") == groups() == launcher.ALL_GROUPS
    assert groups("/dev/null") == launcher.ALL_GROUPS, "what lies elsewhere is unknown"
    monkeypatch.chdir(tmp_path / "tests")
    assert groups("a/test_one.py") == ["python", "unit"]


def test_parts_in_c_are_those_that_can_be_compiled_and_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[list[str], object]] = []
    monkeypatch.setattr(launcher_install, "_run", lambda command, *rest: ran.append((command, rest[-1])))
    for groups in (["python", "unit"], ["python", "compile", "core"]):
        launcher_install._pip(paths.PROJECT, groups, 0)
    last = [(command[-1].removeprefix(str(paths.PROJECT)), variables) for command, variables in ran[1::2]]
    assert last == [("[unit]", {"CELLBLOCK_WITHOUT_C": "1"}), ("", {"CELLBLOCK_WITHOUT_TESTS": "1"})]


def test_the_version_is_told_before_anything_is_installed(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "cellblock"\nversion = "7.8.9"\n')
    assert launcher.version_text(str(tmp_path)) == "Cellblock 7.8.9\n", "no commit without git"
    assert re.fullmatch(
        r"Cellblock \d+\.\d+\.\d+( \([0-9a-f]{7,}(, changed)?\))?\n",
        launcher.version_text(str(paths.PROJECT)),
    )


def test_who_is_not_root_gets_one_command() -> None:
    absent = [Missing(("buildah",), "makes images"), Missing(("netavark", "aardvark-dns"), "is the network")]
    assert launcher_install.not_root_message(absent).splitlines() == [
        "system packages are missing:",
        "  buildah: makes images",
        "  netavark aardvark-dns: is the network",
        "  next: sudo apt-get install --no-install-recommends buildah netavark aardvark-dns",
    ]


def test_without_root_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher_install.shutil, "which", lambda name: name)
    monkeypatch.setattr(launcher_install, "absent_packages", lambda groups: [Missing(("a",), "is one")])
    monkeypatch.setattr(launcher_install, "_run", lambda *_: pytest.fail("ran a program"))
    with pytest.raises(
        launcher_install.InstallError, match=r"sudo apt-get install --no-install-recommends a$"
    ):
        launcher_install.install_system_packages(["python"], is_root=False)


def test_root_is_told_what_is_installed_and_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(launcher_install.shutil, "which", lambda name: name)
    monkeypatch.setattr(launcher_install, "absent_packages", lambda groups: [Missing(("a", "b"), "is one")])
    monkeypatch.setattr(launcher_install, "_run", lambda command, what: ran.append(command))
    launcher_install.install_system_packages(["python"], is_root=True)
    assert [command[-1] for command in ran] == ["update", "b"]
    assert capsys.readouterr().err.splitlines() == [
        "build.py: updating apt's package lists",
        "build.py: installing 2 system packages:",
        "build.py:   a b: is one",
    ]


def test_a_failed_program_is_shown_by_its_last_lines() -> None:
    output = "".join(f"line {number}\n" for number in range(40))
    lines = launcher_install.failure_message("do it", ["pip", "a b"], 2, output).splitlines()
    assert lines[0] == "cannot do it: pip 'a b' ended with status 2"
    assert lines[1:-1] == [f"  | line {number}" for number in range(25, 40)]
    assert lines[-1] == "  next: the lines above say why; build.py tries again from here"


def test_a_full_disk_is_called_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = launcher_install.failure_message("do it", ["pip"], 1, "No space left on device")
    assert "next: free some space" in said
    silent = "Command '[... ensurepip]' returned non-zero exit status 1."
    with memory_disk(tmp_path / "full", "size=1m") as full:
        assert f"df -h {full}" in launcher_install.failure_message("do it", ["venv"], 1, silent, str(full))
    monkeypatch.setattr(launcher_install, "FULL_BYTES", 0)
    assert "free some space" not in launcher_install.failure_message("do it", ["venv"], 1, silent, "/")


def test_a_missing_network_is_called_that() -> None:
    output = "NewConnectionError: Temporary failure in name resolution"
    message = launcher_install.failure_message("do it", ["pip"], 1, output)
    assert "next: this looks like no network" in message


def test_an_old_python_gets_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(paths.PROJECT / "build.py"), run_name="__main__")
    assert caught.value.code == 1
    assert "error: Cellblock needs Python 3.10 or newer; this is " in capsys.readouterr().err


def test_all_groups_have_reasons_that_finish_a_sentence() -> None:
    for need in needs_of(NEEDS, [], "4.3"):
        assert re.match(r"[a-z]+s\b", need.why), need


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A project whose stamp says that it is installed."""
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    interpreter = Path(sys.executable).resolve()
    stamp = f"{launcher.fingerprint(str(tmp_path))}\n{interpreter}\npython core\n"
    (tmp_path / ".venv" / launcher.STAMP).write_text(stamp)
    return tmp_path


def test_a_stamp_that_holds_means_ready(installed: Path) -> None:
    assert launcher.ready(str(installed), ["python"])
    assert not launcher.ready(str(installed), ["python", "test"])


def test_what_decides_the_installation_makes_the_stamp_stale(installed: Path) -> None:
    packages = "cellblock/launcher/system_packages.py"
    for name in ("setup.py", "pyproject.toml", packages, "native/mount/plan.c"):
        path = installed / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("changed")
        assert not launcher.ready(str(installed), ["python"]), name
        path.unlink()
        (installed / "pyproject.toml").write_text("[project]\n")
        assert launcher.ready(str(installed), ["python"]), name
    (installed / "README.md").write_text("changed")
    assert launcher.ready(str(installed), ["python"])


def test_an_interpreter_that_is_gone_or_another_makes_it_stale(installed: Path) -> None:
    python = installed / ".venv/bin/python"
    python.unlink()
    assert not launcher.ready(str(installed), ["python"])
    python.symlink_to("/bin/sh")
    assert not launcher.ready(str(installed), ["python"])


def test_completion_in_a_shell_installs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_BUILD.PY_COMPLETE", "complete_bash")
    monkeypatch.setattr(launcher, "ready", lambda project, groups: False)
    assert launcher.main(["bu"]) == 0


def copy_of_the_tree(folder: Path) -> Path:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=paths.PROJECT, check=True, capture_output=True).stdout
    for name in names.decode().split("\0"):
        source = paths.PROJECT / name
        if name and source.is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / name)
    return folder


def build_py(
    project: Path, *arguments: str, cwd: Path | None = None, **environment: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(project / "build.py"), *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )


def is_locked(project: Path) -> bool:
    """Whether a build.py installs there just now."""
    descriptor = os.open(project, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A fresh copy of the project; the tests of first use follow each other in it."""
    folder = copy_of_the_tree(tmp_path_factory.mktemp("tree"))
    # So that `--help` is answered by what is installed.
    (folder / first_answers.STORED).unlink()
    yield folder
    shutil.rmtree(folder)


@pytest.mark.integration
class TestFirstUse:
    """In a fresh copy of the tree, with a real pip."""

    def test_two_at_once_install_once_and_both_answer(self, tree: Path) -> None:
        first = build_py(tree, "--help")
        while not is_locked(tree):
            assert first.poll() is None, first.communicate()
            time.sleep(0.02)
        second = build_py(tree, "--help")
        answers = [process.communicate(timeout=300) for process in (first, second)]
        assert [first.returncode, second.returncode] == [0, 0], answers
        assert all("Usage: build.py" in out for out, _ in answers)
        assert re.findall(r"making .*\.venv with Python", answers[0][1])
        assert (
            answers[1][1] == "build.py: another build.py is installing into this checkout; waiting for it\n"
        )

    def test_later_uses_are_silent_and_quick(
        self, tree: Path, record_property: Callable[[str, object], None]
    ) -> None:
        """The overhead is measured and reported; a limit here would fail on a busy machine."""
        python = tree / ".venv/bin/python"
        commands = {
            "build.py": [sys.executable, str(tree / "build.py"), "--help"],
            "direct": [str(python), "-I", "-m", "cellblock.cli", "--help"],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(5):
            for name, command in commands.items():
                began = time.perf_counter()
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                times[name].append(time.perf_counter() - began)
                assert done.stderr == ""
        overhead = (statistics.median(times["build.py"]) - statistics.median(times["direct"])) * 1000
        record_property("launcher_overhead_ms", round(overhead, 1))
        sys.stdout.write(f"the launcher adds {overhead:.0f} ms to the command behind it\n")

    def test_paths_are_those_of_the_users_directory(self, tree: Path, tmp_path: Path) -> None:
        (tmp_path / "typer.py").write_text("raise SystemExit('a module of the directory was loaded')")
        probe = "import os, sys; print(os.getcwd(), sys.argv[1:])"
        cli = tree / "cellblock/cli/__main__.py"
        whole = cli.read_text()
        cli.write_text(probe)
        try:
            out, error = build_py(tree, "--help", "a b", cwd=tmp_path).communicate()
        finally:
            cli.write_text(whole)
        assert out.strip() == f"{tmp_path} ['--help', 'a b']", error

    def test_without_network_it_says_so_and_keeps_what_works(self, tree: Path) -> None:
        pyproject = tree / "pyproject.toml"
        whole = pyproject.read_text()
        pyproject.write_text(whole.replace("dependencies = [", 'dependencies = [\n  "zz-not-there>=1",', 1))
        nowhere = {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": "http://127.0.0.1:9/",
            "PIP_FIND_LINKS": "",
        }
        process = build_py(tree, "--help", **nowhere)
        _, error = process.communicate(timeout=300)
        assert process.returncode == 1
        assert "error: cannot install" in error
        assert "next: this looks like no network" in error
        pyproject.write_text(whole)
        process = build_py(tree, "--help", **nowhere)
        _, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
        assert "making" not in error, "the environment that worked was kept"

    def test_a_broken_environment_is_made_again_and_so_is_a_killed_installation(self, tree: Path) -> None:
        python, pip = tree / ".venv/bin/python", tree / ".venv/bin/pip"
        python.unlink()
        process = build_py(tree, "--help")
        while not (python.exists() and pip.exists()):
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        time.sleep(1)
        os.killpg(process.pid, signal.SIGKILL)
        _, error = process.communicate()
        assert "making" in error
        process = build_py(tree, "--help")
        out, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
        assert "Usage: build.py" in out
        assert "making" in error


def test_the_environment_of_the_launcher_is_one_of_venv(tmp_path: Path) -> None:
    """What `has_interpreter` relies on: the environment's python is a link to the base interpreter."""
    venv.create(tmp_path / ".venv", with_pip=False, symlinks=True)
    stamp = ["", str(Path(sys.executable).resolve()), ""]
    assert launcher.has_interpreter(str(tmp_path), stamp)
