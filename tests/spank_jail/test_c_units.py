# SPDX-License-Identifier: Apache-2.0
"""The C unit tests, one program a unit, and what the compiler lets through."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests import c_compiling

SOURCES = Path(__file__).parents[2] / "spank_jail"


@pytest.fixture(scope="module")
def tools() -> None:
    for tool in ("make", "gcc"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")


def make(build: Path, *targets: str) -> subprocess.CompletedProcess[str]:
    return c_compiling.make(SOURCES, build, *targets)


@pytest.fixture(scope="module")
def build(tools: None) -> Path:
    """Where `make` puts what it makes, for all tests; they change nothing of it."""
    return c_compiling.build_folder(SOURCES)


def test_units(build: Path) -> None:
    done = make(build, "check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(", 0 failed") == len(list(SOURCES.glob("tests/test_*.c")))


def test_units_under_sanitizers(build: Path) -> None:
    done = make(build, "check", "SANITIZE=1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(", 0 failed") == len(list(SOURCES.glob("tests/test_*.c")))


def enter(build: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    made = make(build, "jail-enter")
    assert made.returncode == 0, made.stderr
    return subprocess.run([build / "jail-enter", *arguments], capture_output=True, text=True)


def test_jail_enter_prints_a_plan_as_it_was_understood(build: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    plan.write_text("/a\\040b /x none bind,ro,nofail\ntmpfs /tmp tmpfs size=1m,x-jail.per-job\n")
    done = enter(build, "--plan", str(plan), "--print")
    assert done.stdout == (
        "# level capabilities: parts of proc and sysfs are covered or read-only\n"
        "/a\\040b /x none bind,ro,suid,nodev,exec,nofail\n"
        "tmpfs /tmp tmpfs rw,nosuid,nodev,exec,size=1m,x-jail.per-job\n"
    )
    again = tmp_path / "again"
    again.write_text(done.stdout)
    assert enter(build, "--plan", str(again), "--print").stdout == done.stdout


def test_jail_enter_prints_nothing_that_reads_differently(build: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    plan.write_text("dev /dev dev x-jail.per-step\ntmpfs /a\\011b tmpfs mode=1\\0402,x-jail.per-step\n")
    done = enter(build, "--plan", str(plan), "--print")
    assert done.stdout.partition("\n")[2] == (
        "dev /dev dev rw,nosuid,dev,noexec,x-jail.per-step\n"
        "tmpfs /a\\011b tmpfs rw,nosuid,nodev,exec,mode=1\\0402,x-jail.per-step\n"
    )
    plan.write_text(done.stdout)
    assert enter(build, "--plan", str(plan), "--print").stdout == done.stdout


@pytest.mark.parametrize("arguments", [
        ["--nonsense"], ["--chdir", "x", "true"], ["--check", "true"], ["--level", "most", "true"],
    ])  # fmt: skip
def test_jail_enter_says_wrong_usage(build: Path, arguments: list[str]) -> None:
    done = enter(build, *arguments)
    assert done.returncode == 2
    assert "see jail-enter --help" in done.stderr


def test_jail_enter_refuses_a_plan_that_others_can_write(build: Path, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root: others' files are refused before")
    plan = tmp_path / "plan"
    plan.write_text("")
    plan.chmod(0o666)
    done = enter(build, "--root", str(tmp_path), "--plan", str(plan), "--", "true")
    assert done.returncode == 125
    assert "the mount plan must be writable by root alone" in done.stderr


def test_jail_enter_runs_a_command_as_a_user_of_the_jail(build: Path, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root: it mounts")
    root, plan = tmp_path / "root", tmp_path / "plan"
    for folder in ("etc", "bin", "home/ann", "usr", "lib", "lib64"):
        (root / folder).mkdir(parents=True)
    (root / "etc/passwd").write_text("ann:x:4242:4243:Ann:/home/ann:/bin/sh\n")
    (root / "etc/group").write_text("extra:x:4444:ann\n")
    # The node's programs stand in for a distribution.
    plan.write_text("".join(f"{p} {p} none rbind,ro,nofail\n" for p in ("/usr", "/bin", "/lib", "/lib64")))
    done = enter(build, "--root", str(root), "--plan", str(plan), "--user", "ann", "--", "sh", "-c",
                 "id -u; id -g; id -G; pwd; echo $HOME $USER; exit 7")  # fmt: skip
    assert done.stdout.splitlines() == ["4242", "4243", "4243 4444", "/home/ann", "/home/ann ann"]
    assert done.returncode == 7
    missing = enter(build, "--root", str(root), "--plan", str(plan), "--", "no-such-program")
    assert missing.returncode == 127


@pytest.mark.parametrize("file", ["passwd", "group"])
@pytest.mark.parametrize("kind", ["fifo", "socket", "device", "big"])
def test_jail_enter_waits_for_no_account_file(build: Path, tmp_path: Path, file: str, kind: str) -> None:
    if os.geteuid():
        pytest.skip("needs root: it enters a jail")
    assert make(build, "jail-enter").returncode == 0
    (tmp_path / "plan").write_text("")
    etc = tmp_path / "root/etc"
    etc.mkdir(parents=True)
    (etc / "passwd").write_text("ann:x:4242:4242:Ann:/:/bin/sh\n")
    (etc / "group").write_text("ann:x:4242:\n")
    (etc / file).unlink()
    if kind == "big":
        (etc / file).touch()
        os.truncate(etc / file, 16 * 2**20 + 1)
    else:
        kinds = {"fifo": stat.S_IFIFO, "socket": stat.S_IFSOCK, "device": stat.S_IFCHR}
        # /dev/zero, which never ends.
        os.mknod(etc / file, kinds[kind] | 0o644, os.makedev(1, 5))
    argv = [build / "jail-enter", "--root", tmp_path / "root", "--plan", tmp_path / "plan", "--user", "ann"]
    done = subprocess.run([*argv, "--", "true"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 125
    refused = (
        "must be a regular file of at most 16 MiB" if kind in ("fifo", "big") else "cannot read the jail's"
    )
    assert refused in done.stderr


@pytest.mark.parametrize(
    ("level", "core_pattern", "filtered"), [("filesystem", "written", "0"), ("capabilities", "refused", "2")]
)
def test_jail_enter_confines_by_level(
    build: Path, tmp_path: Path, level: str, core_pattern: str, filtered: str
) -> None:
    if os.geteuid():
        pytest.skip("needs root: it mounts")
    plan = tmp_path / "plan"
    folders = ("usr", "bin", "lib", "lib64")
    for folder in (*folders, "etc", "proc"):
        (tmp_path / "root" / folder).mkdir(parents=True)
    (tmp_path / "root/etc/passwd").write_text("ann:x:4242:4243:Ann:/:/bin/sh\n")
    (tmp_path / "root/etc/group").write_text("")
    plan.write_text(
        "proc /proc proc defaults\n" + "".join(f"/{f} /{f} none rbind,ro,nofail\n" for f in folders)
    )
    common = ("--root", str(tmp_path / "root"), "--plan", str(plan), "--level", level)
    # Opens it without writing a byte.
    done = enter(build, *common, "--", "sh", "-c", "(: >> /proc/sys/kernel/core_pattern) 2>&- && echo written"
                 " || echo refused; grep Seccomp: /proc/self/status")  # fmt: skip
    assert done.stdout.split() == [core_pattern, "Seccomp:", filtered]
    ann = enter(build, *common, "--user", "ann", "--", "grep", "Seccomp:", "/proc/self/status")
    assert ann.stdout.split()[1] == filtered
    assert enter(build, *common, "--check").returncode == 0


@pytest.mark.parametrize(("options", "answer"), [((), "EPERM"), (("--allow", "perf_event_open"), "EFAULT")])
def test_jail_enter_leaves_a_call_alone_that_is_allowed(
    build: Path, tmp_path: Path, options: tuple[str, ...], answer: str
) -> None:
    if os.geteuid():
        pytest.skip("needs root: it enters a jail")
    numbers = {"x86_64": 298, "aarch64": 241}
    # With no address to read from, the kernel says so before anything else.
    script = f"""
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall({numbers[os.uname().machine]}, None, 0, -1, -1, 0)
print(errno.errorcode[ctypes.get_errno()])
"""
    assert make(build, "jail-enter").returncode == 0
    (tmp_path / "plan").write_text("proc /proc proc defaults\n")
    # The running system as the jail, under a layer that takes what is written.
    overlay = (
        "mount -t tmpfs tmpfs base; cd base; mkdir up work root;"
        " mount -t overlay overlay -o lowerdir=/,upperdir=up,workdir=work root;"
        ' exec "$0" --root "$PWD/root" --plan "$OLDPWD/plan" "$@"'
    )
    (tmp_path / "base").mkdir()
    program = [*options, "--", os.path.realpath(sys.executable), "-I", "-c", script]
    command = ["unshare", "--mount", "sh", "-euc", overlay, str(build / "jail-enter"), *program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == [answer], done


def test_jail_enter_names_what_can_be_allowed(build: Path) -> None:
    done = enter(build, "--allow", "bpf", "--", "true")
    assert done.returncode == 2
    assert '"bpf" is no system call that can be allowed; there is: perf_event_open' in done.stderr
