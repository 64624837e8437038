# SPDX-License-Identifier: Apache-2.0
"""Where settings come from, and what a value may say."""

from __future__ import annotations

import os

import pytest

from tests.enroot.conftest import Enroot


def settings(enroot: Enroot, **environment: str) -> dict[str, str]:
    told = enroot.out("info", env=environment).partition("Settings:\n")[2]
    return dict(line.strip().split("=", 1) for line in told.splitlines())


def test_defaults(shared: Enroot) -> None:
    told = settings(shared)
    assert told["ENROOT_DATA_PATH"] == str(shared.data)
    assert told["ENROOT_CONFIG_PATH"] == str(shared.config)
    assert told["ENROOT_CACHE_PATH"] == str(shared.home / ".cache/enroot")
    assert told["ENROOT_RUNTIME_PATH"] == str(shared.base / "run/enroot")
    assert told["ENROOT_TEMP_PATH"] == "/tmp"
    assert told["ENROOT_MAX_PROCESSORS"] == str(len(os.sched_getaffinity(0)))
    assert told["ENROOT_MAX_CONNECTIONS"] == "10"
    assert told["ENROOT_LOGIN_SHELL"] == "yes"
    assert told["ENROOT_REMAP_ROOT"] == "no"
    assert settings(shared, XDG_DATA_HOME="/x")["ENROOT_DATA_PATH"] == "/x/enroot"


def test_the_first_setter_wins(enroot: Enroot) -> None:
    lines = "# comment\nENROOT_HOOK_SETTINGS ENROOT_A ENROOT_B ENROOT_C ENROOT_D\n"
    enroot.write(enroot.sysconf / "enroot.conf", f"{lines}ENROOT_A  main\nENROOT_B=main\n  NVIDIA_C = main\n")
    enroot.write(enroot.sysconf / "enroot.conf.d/20.conf", "ENROOT_C second\nENROOT_D second\n")
    enroot.write(enroot.sysconf / "enroot.conf.d/10.conf", "ENROOT_B first\nENROOT_C first\n")
    enroot.write(enroot.sysconf / "enroot.conf.d/10.conf.off", "nonsense")
    told = settings(enroot, ENROOT_A="environment")
    assert [told[f"ENROOT_{key}"] for key in "ABCD"] == ["environment", "main", "first", "second"]
    assert told["NVIDIA_C"] == "main"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${HOME}/x", "{home}/x"),
        ("$HOME-y", "{home}-y"),
        ("${UNSET:-word}/${ENROOT_SYSCONF_PATH:+set}", "word/set"),
        ("${UNSET:-${HOME}}", "{home}"),
        ("/run/$(id -u)/$( id -g )", "/run/{uid}/{gid}"),
        ("$UID", "{uid}"),
        ("$(nproc)", "{nproc}"),
        ("\"a b\" 'c $HOME' d\\$e", "a b c $HOME d$e"),
        ("", ""),
    ],
)
def test_values(enroot: Enroot, value: str, expected: str) -> None:
    enroot.write(enroot.sysconf / "enroot.conf", f"NVIDIA_X {value}\n")
    owner = enroot.home.stat()
    wanted = expected.format(
        home=enroot.home, uid=owner.st_uid, gid=owner.st_gid, nproc=len(os.sched_getaffinity(0))
    )
    assert settings(enroot)["NVIDIA_X"] == wanted


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("NVIDIA_X $(cat /etc/passwd)", "$(cat /etc/passwd) is not run"),
        ("NVIDIA_X `id`", "are not run"),
        ("NVIDIA_X ${HOME", 'without "}"'),
        ("NVIDIA_X 'open", "is not closed"),
        ("PATH /bin", '"PATH" is no setting'),
        ("LD_PRELOAD=x", '"LD_PRELOAD" is no setting'),
        ("ENROOT_MOUNTHOME yes", '"ENROOT_MOUNTHOME" is no setting; write ENROOT_MOUNT_HOME'),
        ("ENROOT_ROOTFS_WRITEABLE=y", "write ENROOT_ROOTFS_WRITABLE"),
        ("ENROOT_REMPA_ROOT y", "write ENROOT_REMAP_ROOT"),
    ],
)
def test_a_wrong_line_is_named(enroot: Enroot, line: str, complaint: str) -> None:
    path = enroot.write(enroot.sysconf / "enroot.conf", f"\n{line}\n")
    done = enroot("list")
    assert done.returncode == 1
    assert f"[ERROR] {path}:2: " in done.stderr
    assert complaint in done.stderr


def test_an_unknown_setting_is_an_error_with_the_nearest_name(enroot: Enroot) -> None:
    path = enroot.write(enroot.sysconf / "enroot.conf", "ENROOT_MOUNT_HOME no\nENROOT_NONSENSE yes\n")
    done = enroot("list")
    assert done.returncode == 1
    assert f'[ERROR] {path}:2: "ENROOT_NONSENSE" is no setting; write ENROOT_' in done.stderr
    # The declaration that the message gives is taken as it stands.
    declaration = done.stderr.rpartition(": ")[2].strip()
    assert declaration == "ENROOT_HOOK_SETTINGS ENROOT_NONSENSE"
    enroot.write(path, f"{declaration}\n{path.read_text()}")
    assert settings(enroot)["ENROOT_NONSENSE"] == "yes"
    drop_in = enroot.write(enroot.sysconf / "enroot.conf.d/site.conf", "ENROOT_UNSHARE_MNT yes\n")
    assert f'[ERROR] {drop_in}:1: "ENROOT_UNSHARE_MNT" is no setting' in enroot("list").stderr
    drop_in.unlink()
    script = enroot.write(enroot.home / "conf", "#ENROOT_MOUNT_HOMES=y\n")
    done = enroot("start", "-c", script, "small", "true")
    assert f"[ERROR] {script}:1: " in done.stderr
    assert "write ENROOT_MOUNT_HOME" in done.stderr


def test_settings_of_hooks_are_passed_on(enroot: Enroot) -> None:
    """docs/enroot.md: declared in files, in several lines; anything in the environment"""
    enroot.write(
        enroot.sysconf / "enroot.conf",
        "ENROOT_HOOK_SETTINGS ENROOT_SITE_A \tENROOT_SITE_B\n"
        "ENROOT_SITE_A yes\nENROOT_ZSTD_OPTIONS -1\nNVIDIA_ANY x\n",
    )
    enroot.write(
        enroot.sysconf / "enroot.conf.d/10.conf",
        "ENROOT_HOOK_SETTINGS=ENROOT_SITE_C\nENROOT_SITE_C=c\nENROOT_SITE_B=b\n",
    )
    told = settings(enroot)
    keys = ("ENROOT_SITE_A", "ENROOT_SITE_B", "ENROOT_SITE_C", "NVIDIA_ANY")
    assert [told[key] for key in keys] == ["yes", "b", "c", "x"]
    assert enroot("list", env={"ENROOT_NONSENSE": "yes"}).returncode == 0


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("ENROOT_MAX_PROCESSORS", "nonsense", "a whole number from 1 to 65536"),
        ("ENROOT_MAX_CONNECTIONS", "0", "a whole number from 1 to 10000"),
        ("ENROOT_CONNECT_TIMEOUT", "1.5", "a whole number from 0 to "),
        ("ENROOT_TRANSFER_TIMEOUT", "-1", "a whole number from 0 to "),
        ("ENROOT_TRANSFER_RETRIES", "99999999999999999999", "a whole number from 0 to "),
        ("ENROOT_CACHE_PATIENCE", "10s", "a whole number from 0 to "),
        ("ENROOT_CACHE_WAIT", "+5", "a whole number from 0 to "),
        ("ENROOT_CACHE_MAX_SHARE", "101", "a whole number from 0 to 100"),
        ("ENROOT_CACHE_MAX_SIZE", "20X", "bytes, as 500M, 20G or 1T"),
    ],
)
def test_a_number_that_is_none(enroot: Enroot, key: str, value: str, wanted: str) -> None:
    done = enroot("list", env={key: value})
    assert done.returncode == 1
    assert f'[ERROR] the environment: {key} is "{value}": it takes {wanted}' in done.stderr
    path = enroot.write(enroot.sysconf / "enroot.conf", f"\n{key} {value}\n")
    assert f'[ERROR] {path}:2: {key} is "{value}": it takes {wanted}' in enroot("list").stderr
    # Whoever comes first decides, and what means no is the default.
    for unset in ("", "no", "10"):
        assert enroot("list", env={key: unset}).returncode == 0
    script = enroot.write(enroot.home / "conf", f"#{key}={value}\n")
    assert f"[ERROR] {script}:1: " in enroot("start", "-c", script, "small", env={key: "10"}).stderr


@pytest.mark.parametrize(
    ("value", "remapped"), [("y", True), ("1", True), ("No", False), ("F", False), ("", False)]
)
def test_truth(shared: Enroot, value: str, remapped: bool) -> None:
    assert (shared.sh("id -u", env={"ENROOT_REMAP_ROOT": value}) == "0") == remapped


def test_lines_of_a_script_override_everything(shared: Enroot) -> None:
    script = shared.write(shared.home / "conf", "#ENROOT_ROOTFS=small\n#ENROOT_REMAP_ROOT=no\n# ENROOT_X=y\n")
    uid = str(shared.home.stat().st_uid)
    assert shared.sh("id -u", "--root", "--conf", str(script)) == uid
    assert shared.sh("id -u", "-c", str(script), env={"ENROOT_REMAP_ROOT": "yes"}) == uid


def test_batch_runs_what_its_script_names(shared: Enroot) -> None:
    script = shared.write(
        shared.home / "batch",
        """\
        #!/usr/bin/env -S enroot batch
        #ENROOT_ROOTFS=small
        environ() { echo "FROM=${ENROOT_ROOTFS##*/}"; echo 'HOST=${HOME}'; }
        mounts() { echo "/usr/share /mnt/share none x-create=dir,rbind,ro"; }
        hooks() { echo "HOOK=$ENROOT_PID" >> "$ENROOT_ENVIRON"; }
        rc() { echo "args: $*"; exec "$@"; }
        """,
    )
    told = shared.out(
        "batch", script, "sh", "-c", "echo $FROM $HOST $HOOK $$; ls /mnt/share | grep -c ."
    ).splitlines()
    assert told[0].startswith("args: sh -c")
    name, host, hook, pid = told[1].split()
    assert (name, host, hook) == ("small", str(shared.home), pid)
    assert int(told[2]) > 1
    nameless = shared.write(shared.home / "nameless", "true\n")
    done = shared("batch", nameless)
    assert done.returncode == 1
    assert "#ENROOT_ROOTFS=" in done.stderr


def test_a_failing_function_of_a_script_stops_the_start(shared: Enroot) -> None:
    script = shared.write(shared.home / "failing", "hooks() { return 4; }\n")
    done = shared("start", "-c", script, "small", "true")
    assert done.returncode == 1
    assert f"[ERROR] {script}: its function hooks() ended with status 4" in done.stderr


def test_directories_are_made_for_their_user_alone(enroot: Enroot) -> None:
    assert (enroot.data.stat().st_mode & 0o777, (enroot.base / "run/enroot").stat().st_mode & 0o777) == (
        0o700,
        0o700,
    )
    done = enroot("start", "small", "true", env={"ENROOT_RUNTIME_PATH": "/proc/nowhere"})
    assert done.returncode == 1
    assert "set ENROOT_RUNTIME_PATH to one that you may write" in done.stderr
