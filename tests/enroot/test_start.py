# SPDX-License-Identifier: Apache-2.0
"""What a command finds in a container, and what it cannot do there."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.enroot.conftest import Enroot, servers


def status_of(text: str) -> dict[str, str]:
    return {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}


def test_one_is_oneself_without_any_right(shared: Enroot) -> None:
    uid = shared.home.stat().st_uid
    assert shared.sh("id -u; id -g").split() == [str(uid), str(shared.home.stat().st_gid)]
    status = status_of(shared.sh("cat /proc/self/status"))
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == int(status["CapAmb"], 16) == 0
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


def test_remapped_one_is_root_and_changing_owners_does_nothing(shared: Enroot) -> None:
    script = "id -u; : > /tmp/x; chown 5:5 /tmp/x; stat -c %u:%g /tmp/x; grep NoNewPrivs /proc/self/status"
    assert shared.sh(script, "--root").split() == ["0", "0:0", "NoNewPrivs:", "1"]


def test_the_root_is_read_only_unless_writable(enroot: Enroot) -> None:
    assert enroot.sh("(: > /x) 2>/dev/null || echo refused; : > /tmp/y && echo done").split() == [
        "refused",
        "done",
    ]
    enroot.sh(": > /x", "--rw")
    assert (enroot.data / "small/x").exists()
    assert not (enroot.data / "small/tmp/y").exists()
    enroot.sh(": > /z", env={"ENROOT_ROOTFS_WRITABLE": "yes"})
    assert (enroot.data / "small/z").exists()


def test_an_image_file_starts_and_forgets_what_is_written(shared: Enroot) -> None:
    script = "rm -r /etc/rc /var/lib; mkdir /var/lib; ls -A /var/lib; echo more >> /etc/environment"
    script += "; cat /etc/environment"
    told = shared.out("start", "--rw", "small.sqsh", "sh", "-c", script)
    assert told.splitlines() == ["IMAGE=from the image", "BOTH=image", "more"]
    assert shared.out("start", "./small.sqsh", "cat", "/etc/environment").splitlines()[-1] == "BOTH=image"
    assert shared("start", "small.sqsh", "sh", "-c", ": > /x").returncode != 0


def test_the_server_of_an_image_ends_with_the_container(shared: Enroot) -> None:
    assert shared.out("start", "small.sqsh", "true") == ""
    deadline = time.monotonic() + 60
    while servers(shared) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not servers(shared)


def test_an_overlay_without_the_kernel(shared: Enroot) -> None:
    if not shutil.which("fuse-overlayfs"):
        pytest.skip("fuse-overlayfs is not installed: `python3 build.py test` installs it")
    script = "rm -r /etc/rc /var/lib; mkdir /var/lib; ls -A /var/lib; echo more >> /etc/environment"
    script += "; cat /etc/environment; grep ' / / ' /proc/self/mountinfo | grep -o ' - fuse '"
    off = {"ENROOT_NATIVE_OVERLAYFS": "no"}
    told = shared.out("start", "--rw", "small.sqsh", "sh", "-c", script, env=off)
    assert told.splitlines() == ["IMAGE=from the image", "BOTH=image", "more", " - fuse"]
    assert shared("start", "small.sqsh", "sh", "-c", ": > /x", env=off).returncode != 0
    deadline = time.monotonic() + 60
    while servers(shared) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not servers(shared)


@pytest.mark.parametrize("superuser", ["no", "yes"])
def test_the_kernel_mounts_what_root_alone_can_write(
    shared: Enroot, image: Path, tmp_path: Path, superuser: str
) -> None:
    if os.geteuid() or not Path("/dev/loop-control").exists():
        pytest.skip("needs root and loop devices")
    shared.write(shared.sysconf / "enroot.conf.d/kernel.conf", "ENROOT_KERNEL_IMAGES yes\n")
    environment = {
        **os.environ,
        "ENROOT_SYSCONF_PATH": str(shared.sysconf),
        "ENROOT_RUNTIME_PATH": str(tmp_path / "r"),
    }
    environment["ENROOT_ALLOW_SUPERUSER"] = superuser
    # pytest's folder lies in /tmp, below directories of root's alone.
    own = tmp_path / "own.sqsh"
    shutil.copy(image, own)
    own.chmod(0o644)
    script = "rm -r /var/lib; mkdir /var/lib; echo new > /etc/rc; cat /etc/rc /etc/environment"
    script += f"; cat /sys/block/loop*/loop/backing_file 2>&1 | grep -c {own}"

    def run(file: Path) -> subprocess.CompletedProcess[str]:
        command = [str(shared.program), "start", "--rw", str(file), "sh", "-c", script]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    def backed() -> bool:
        for path in Path("/sys/block").glob("loop*/loop/backing_file"):
            with contextlib.suppress(OSError):  # another test's has just gone
                if str(own) in path.read_text():
                    return True
        return False

    done, others = run(own), run(shared.home / "small.sqsh")
    assert (done.stdout.splitlines(), done.stderr) == (["new", "IMAGE=from the image", "BOTH=image", "1"], "")
    assert others.stdout.splitlines() == ["new", "IMAGE=from the image", "BOTH=image", "0"]
    assert "squashfuse serves the image instead" in others.stderr
    # The kernel may take the mounts of a namespace down after its last process has ended.
    deadline = time.monotonic() + 60
    while backed():
        assert time.monotonic() < deadline, "the image still has its loop device"
        time.sleep(0.05)
    # A user's start does as always, without a word.
    assert shared.out("start", "small.sqsh", "cat", "/etc/environment") == "IMAGE=from the image\nBOTH=image"


def test_a_file_that_is_no_image_is_named(shared: Enroot) -> None:
    shared.write(shared.home / "text.sqsh", "no squashfs")
    done = shared("start", "./text.sqsh", "true")
    assert done.returncode == 1
    assert done.stderr.startswith("[ERROR] ./text.sqsh: it is no squashfs image: ")
    damaged = shared.write(shared.home / "damaged.sqsh", "")
    whole = (shared.home / "small.sqsh").read_bytes()
    damaged.write_bytes(whole[:200])
    done = shared("start", "damaged.sqsh", "true")
    assert "damaged.sqsh: the image is cut off: there are 200 of its " in done.stderr
    # All that follows the superblock is gone.
    damaged.write_bytes(whole[:96] + bytes(len(whole) - 96))
    done = shared("start", "damaged.sqsh", "true")
    assert done.returncode == 1
    assert "squashfuse cannot mount the image" in done.stderr
    damaged.write_bytes(b"")
    assert "damaged.sqsh: the file is empty" in shared("start", "damaged.sqsh", "true").stderr
    assert "it is a directory" in shared("start", "./.", "true").stderr


@pytest.mark.parametrize(
    ("command", "status"),
    [(["true"], 0), (["false"], 1), (["sh", "-c", "exit 7"], 7), (["missing"], 127), (["/etc/passwd"], 126)],
)
def test_the_exit_status_is_the_commands(shared: Enroot, command: list[str], status: int) -> None:
    assert shared("start", "small", *command).returncode == status
    assert shared("start", "--pid", "small", *command).returncode == status


def test_without_an_rc_the_command_runs_itself(enroot: Enroot) -> None:
    (enroot.data / "small/etc/rc").unlink()
    assert enroot.out("start", "small", "sh", "-c", "echo $0 here") == "sh here"
    assert enroot("start", "small", "missing").returncode == 127


def test_the_rc_gets_the_command_as_a_login_shell(shared: Enroot) -> None:
    assert shared.out("start", "small") == "no command"
    assert (
        shared.out("start", "-e", "WORKDIR=/tmp/deep/er", "small", "sh", "-c", "echo $PWD") == "/tmp/deep/er"
    )
    rc = shared.write(shared.home / "rc", 'echo "$0|$*"; shopt -q login_shell && echo login; echo $-\n')
    told = shared.out("start", "--rc", rc, "small", "a", "b c").splitlines()
    assert told[:2] == ["/etc/rc|a b c", "login"]
    told = shared.out("start", "--rc", rc, "small", env={"ENROOT_LOGIN_SHELL": "no"}).splitlines()
    assert "login" not in told


def test_the_environment_is_the_files_and_login_defaults(shared: Enroot) -> None:
    told = dict(line.split("=", 1) for line in shared.out("start", "small", "env").splitlines())
    assert told["IMAGE"] == "from the image"
    assert told["TERM"] == "dumb"
    assert told["HOME"]
    assert told["SHELL"]
    assert told["USER"]
    assert told["PATH"]
    assert "XDG_RUNTIME_DIR" not in told
    assert not any(name.startswith("ENROOT_") for name in told)


def test_later_environments_win(shared: Enroot) -> None:
    shared.write(shared.sysconf / "environ.d/10-a.env", "BOTH=system\nSYSTEM=${HOME}\n# comment\n")
    shared.write(shared.config / "environ.d/10-b.env", "BOTH=user\nUSERS=${SYSTEM}\n")
    told = shared.out(
        "start", "-e", "GIVEN", "-e", "ABSENT", "small", "env", env={"GIVEN": "host"}
    ).splitlines()
    assert {"BOTH=user", f"SYSTEM={shared.home}", f"USERS={shared.home}", "GIVEN=host"} <= set(told)
    assert not [line for line in told if line.startswith("ABSENT")]
    assert "BOTH=line" in shared.out("start", "-e", "BOTH=line", "small", "env").splitlines()


def test_namespaces_on_request(shared: Enroot) -> None:
    def numbers(*options: str) -> dict[str, str]:
        told = shared.sh(
            "for n in pid net ipc uts mnt user; do stat -Lc $n=%i /proc/self/ns/$n; done", *options
        )
        return dict(line.split("=") for line in told.splitlines())

    own = {name: str(Path(f"/proc/self/ns/{name}").stat().st_ino) for name in ("pid", "net", "ipc", "uts")}
    plain = numbers()
    assert {name: plain[name] for name in own} == own
    for name in own:
        assert numbers(f"--{name}")[name] != own[name]
    assert (
        shared.sh("ls /sys/class/net 2>/dev/null | grep -c .; grep -c : /proc/net/dev", "--net").split()[-1]
        == "1"
    )


def test_ipc_brings_a_small_dev(shared: Enroot) -> None:
    there = set(shared.sh("ls /dev", "--ipc").split())
    assert {"null", "zero", "full", "random", "urandom", "pts", "shm", "mqueue", "fd", "stdin"} <= there
    assert not {"kmsg", "mem", "fuse"} & there
    assert shared.sh("echo x > /dev/null; [ -c /dev/null ] && echo device", "--ipc") == "device"
    assert "mqueue" not in shared.sh("ls /dev", env={"ENROOT_RESTRICT_DEV": "y"}).split()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_pid_forwards_signals_to_the_command(shared: Enroot, number: signal.Signals) -> None:
    script = "trap 'echo got; exit 3' TERM INT; echo $$; while :; do sleep 0.05; done"
    started = shared.popen("start", "--pid", "small", "sh", "-c", script)
    assert started.stdout
    assert started.stdout.readline() == "1\n"
    started.send_signal(number)
    assert started.wait(60) == 3
    assert started.stdout.read() == "got\n"


def test_pid_dies_with_its_parent(shared: Enroot) -> None:
    started = shared.popen("start", "--pid", "small", "sh", "-c", "echo ready; while :; do sleep 0.05; done")
    assert started.stdout
    assert started.stdout.readline() == "ready\n"
    started.kill()
    # The pipe closes when the last process that has it is gone.
    assert started.stdout.read() == ""
    started.wait()


def test_exec_joins_a_container(shared: Enroot) -> None:
    started = shared.popen("start", "-e", "OF=start", "small", "sh", "-c", "echo ready; sleep 30")
    try:
        assert started.stdout
        started.stdout.readline()
        done = shared(
            "exec", "-e", "OF2=exec", str(started.pid), "sh", "-c", "echo $OF $OF2; cat /etc/rc; id -u"
        )
        assert done.stdout.startswith("start exec\n# enroot-provenance"), done.stderr
        assert status_of(shared.out("exec", str(started.pid), "cat", "/proc/self/status"))["Seccomp"] == "2"
        assert shared("exec", str(started.pid), "missing").returncode == 127
        row = shared.out("list", "--fancy").splitlines()
        assert row[0].split() == [
            "NAME",
            "PID",
            "COMM",
            "STATE",
            "STARTED",
            "TIME",
            "MNTNS",
            "USERNS",
            "COMMAND",
        ]
        assert row[1].split()[:2] == ["small", str(started.pid)]
    finally:
        started.kill()
        started.wait()
    assert shared.out("list", "-f").splitlines()[1].split() == ["small"]


@pytest.mark.skipif(os.geteuid() != 0, reason="there are two users: root and the container's")
def test_root_enters_a_container_as_its_user(shared: Enroot) -> None:
    """Programs in it are that user's, and uid 0 may write to /proc/sys without any capability."""
    assert shared.account
    started = shared.popen("start", "small", "sh", "-c", "echo ready; sleep 30")
    try:
        assert started.stdout
        started.stdout.readline()
        script = "id -u; [ ! -w /proc/sys/kernel/domainname ] || echo may write"
        command = [str(shared.program), "exec", str(started.pid), "/bin/sh", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, env=shared.environment())
        assert done.stdout == f"{pwd.getpwnam(shared.account).pw_uid}\n", done.stderr
    finally:
        started.kill()
        started.wait()


# Runs its arguments in a session with a key that is the account's (argv[1]) and for who possesses it alone.
_WITH_KEY = """
import ctypes, os, sys
add_key, keyctl = {"x86_64": (248, 250), "aarch64": (217, 219)}[os.uname().machine]
call = ctypes.CDLL(None).syscall
call(keyctl, 1, None)
key = call(add_key, b"user", b"cellblock-secret", b"x", ctypes.c_long(1), ctypes.c_long(-3))
if key < 0 or call(keyctl, 5, key, 0x3F000000) or call(keyctl, 4, key, int(sys.argv[1]), -1):
    sys.exit(77)
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="there are two users: root and the container's")
def test_root_leaves_its_keys_behind(shared: Enroot) -> None:
    """Whoever possesses a key reads it: programs of the container's user must not have root's session."""
    assert shared.account
    with_key = [sys.executable, "-c", _WITH_KEY, str(pwd.getpwnam(shared.account).pw_uid)]
    here = subprocess.run([*with_key, "/bin/cat", "/proc/keys"], capture_output=True, text=True)
    if here.returncode == 77:
        pytest.skip("this system keeps no keys, or a filter refuses them")
    assert "cellblock-secret" in here.stdout
    started = shared.popen("start", "small", "sh", "-c", "echo ready; sleep 30")
    try:
        assert started.stdout
        started.stdout.readline()
        command = [*with_key, str(shared.program), "exec", str(started.pid), "/bin/cat", "/proc/keys"]
        done = subprocess.run(command, capture_output=True, text=True, env=shared.environment())
        assert done.returncode == 0, done.stderr
        assert "cellblock-secret" not in done.stdout
    finally:
        started.kill()
        started.wait()


def test_exec_says_whose_process_it_is(shared: Enroot) -> None:
    done = shared("exec", str(os.getpid()), "true")
    assert done.returncode == 1
    assert "another user's" in done.stderr or "is in no container" in done.stderr


def test_two_at_once_share_a_root(shared: Enroot) -> None:
    running = [shared.popen("start", "small", "true") for _ in range(12)]
    assert [process.wait(60) for process in running] == [0] * 12


def test_root_runs_containers_too(shared: Enroot, image: Path, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root")
    environment = {
        **os.environ,
        "ENROOT_DATA_PATH": str(tmp_path / "data"),
        "ENROOT_RUNTIME_PATH": str(tmp_path / "run"),
    }

    def run(*words: str, **extra: str) -> subprocess.CompletedProcess[str]:
        command = [str(shared.program), *words]
        return subprocess.run(
            command, env={**environment, **extra}, capture_output=True, text=True, cwd=tmp_path
        )

    assert run("create", "-n", "c", str(image)).returncode == 0
    plain = run("start", "c", "sh", "-c", "id -u; cat /proc/self/uid_map")
    assert plain.stdout.split() == ["0", "0", "0", "1"], plain.stderr
    real = run(
        "start", "-w", "c", "sh", "-c", ": > /x; chown 5 /x; stat -c %u /x", ENROOT_ALLOW_SUPERUSER="yes"
    )
    assert real.stdout == "5\n", real.stderr


def test_a_refusal_names_the_setting(shared: Enroot) -> None:
    # The limits of a user namespace are its own: nobody else's containers are refused.
    switch_off = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    done = shared("start", "small", "true", prefix=("unshare", "-Ur", "sh", "-c", switch_off, "sh"))
    assert done.returncode == 1
    assert "user.max_user_namespaces = 0" in done.stderr
    assert "sysctl -w user.max_user_namespaces=" in done.stderr
