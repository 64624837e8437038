# SPDX-License-Identifier: Apache-2.0
"""fstab with enroot's extensions, the default mounts, hooks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.enroot.conftest import Enroot


def table(enroot: Enroot, *options: str) -> dict[str, tuple[str, str]]:
    """Mount point to options and type; of what is stacked, the one on top."""
    found = {}
    for line in enroot.sh("cat /proc/self/mountinfo", *options).splitlines():
        fields = line.split()
        found[fields[4]] = (fields[5], fields[fields.index("-") + 1])
    return found


def test_default_mounts(shared: Enroot) -> None:
    mounts = table(shared)
    assert {"/", "/proc", "/sys", "/dev", "/dev/shm"} <= set(mounts)
    assert [mounts[point][1] for point in ("/tmp", "/run", "/run/lock", "/dev/shm")] == ["tmpfs"] * 4
    assert mounts["/"][0].split(",")[0] == "ro"
    assert mounts["/sys"][0].split(",")[0] == "ro"
    assert {"nosuid", "nodev"} <= set(mounts["/"][0].split(","))
    assert mounts["/etc/hosts"][0].split(",")[0] == "ro"
    assert shared.sh("cat /etc/hosts") == Path("/etc/hosts").read_text().strip()


@pytest.mark.parametrize(
    ("line", "point", "options", "kind"),
    [
        ("{src}", "{src}", "", ""),
        ("{src} /mnt/a", "/mnt/a", "", ""),
        ("{src} /mnt/b none bind,ro", "/mnt", "", ""),
        ("{src} /mnt/c none x-create=dir,bind,ro,nosuid,noexec 0 0", "/mnt/c", "ro,nosuid,noexec", ""),
        ("{src} bind,ro", "{src}", "ro", ""),
        ("tmpfs /mnt/d", "/mnt/d", "", "tmpfs"),
        ("tmpfs /mnt/e tmpfs x-create=dir,size=1m,noexec", "/mnt/e", "noexec", "tmpfs"),
        ("{src}/file /mnt/f none x-create=auto,bind,rprivate", "/mnt/f", "", ""),
        ("{src}/a\\040b /mnt/g none x-create=dir,rbind", "/mnt/g", "", ""),
        ("${{GIVEN}} /mnt/h none x-create=dir,rbind", "/mnt/h", "", ""),
    ],
)
def test_lines(shared: Enroot, line: str, point: str, options: str, kind: str) -> None:
    source = shared.base / "source"
    (source / "a b").mkdir(parents=True, exist_ok=True)
    (source / "file").write_text("")
    wanted = line.format(src=source)
    if "/mnt/b" in line:
        done = shared("start", "-m", wanted, "small", "true")
        assert done.returncode == 1
        assert "/mnt/b" in done.stderr
        assert "x-create" in done.stderr
        return
    mounts = table(shared, "-m", wanted, "-e", f"GIVEN={source}")
    got, got_kind = mounts[point.format(src=source)]
    assert set(options.split(",")) - {""} <= set(got.split(","))
    assert not kind or got_kind == kind


def test_colons_are_fields(shared: Enroot) -> None:
    assert table(shared, "-m", "/usr/share:/mnt/x:x-create=dir,bind,ro")["/mnt/x"][0].split(",")[0] == "ro"
    assert "/usr/share" in table(shared, "--mount", "/usr/share")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("/usr/share /../x none bind", "EXDEV"),
        ("/usr/share /mnt/../../x none bind", "EXDEV"),
        ("/nonexistent /mnt/x none bind,x-create=dir", "ENOENT"),
        ("tmpfs /mnt/x tmpfs x-create=dir,size=nonsense", "size"),
        ("/usr/share /mnt/x none bind,x-create=link", "x-create=link"),
        ("/usr/share /mnt/x none bind extra 0 0 0", "fields"),
        ("/usr/share /mnt/x none bind,size=1", "no option of a bind mount"),
        ("nonsense", "where to mount it"),
        ("${UNSET_HERE} /mnt/x", "its variable is not set"),
    ],
)
def test_wrong_lines_say_what_is_wrong(shared: Enroot, line: str, complaint: str) -> None:
    done = shared("start", "-m", line, "small", "true")
    assert done.returncode == 1
    assert complaint in done.stderr, done.stderr


def test_the_image_does_not_decide_what_others_mount(enroot: Enroot) -> None:
    """${VAR} is the variable of who starts the container, even if the image sets one of that name."""
    for name in ("mine", "images", "environd"):
        enroot.write(enroot.home / name / "file", name)
    enroot.write(enroot.data / "small/etc/environment", f"WHERE={enroot.home}/images\n")
    enroot.write(enroot.data / "small/etc/fstab", "${WHERE} /mnt/c none x-create=dir,bind\n")
    enroot.write(enroot.sysconf / "mounts.d/50-site.fstab", "${WHERE} /mnt/a none x-create=dir,bind\n")
    hook = "#!/bin/sh\necho '${WHERE} /mnt/b none x-create=dir,bind' >> \"$ENROOT_MOUNTS\"\n"
    enroot.write(enroot.sysconf / "hooks.d/50-site.sh", hook, 0o755)
    script = "cat /mnt/a/file; echo; cat /mnt/b/file; echo; cat /mnt/c/file; echo; cat /mnt/d/file"

    def seen(*options: str, **variables: str) -> list[str]:
        mount = "${WHERE} /mnt/d none x-create=dir,bind"
        return enroot.sh(script, "-m", mount, *options, env=variables).splitlines()

    mine = {"WHERE": f"{enroot.home}/mine"}
    assert seen(**mine) == ["mine", "mine", "images", "mine"]
    assert seen() == ["images"] * 4
    assert seen("-e", f"WHERE={enroot.home}/environd", **mine) == ["environd"] * 4
    # Also where it is the image's value: who says it decides, not whether it differs.
    assert seen("-e", f"WHERE={enroot.home}/images", **mine) == ["images"] * 4
    for name in ("images", "environd"):
        enroot.write(enroot.sysconf / "environ.d/50-site.env", f"WHERE={enroot.home}/{name}\n")
        assert seen(**mine) == [name] * 4


def test_nofail_leaves_out_what_is_missing(shared: Enroot) -> None:
    assert "/mnt/x" not in table(shared, "-m", "/nonexistent /mnt/x none bind,x-create=dir,nofail")


def test_a_target_never_leaves_the_root(enroot: Enroot) -> None:
    outside = enroot.base / "outside"
    outside.mkdir()
    inside = enroot.data / "small" / str(outside).lstrip("/")
    inside.mkdir(parents=True)
    inside.chmod(0o777)
    (enroot.data / "small/mnt/link").symlink_to(outside)
    mounts = table(enroot, "-m", "tmpfs /mnt/link/x tmpfs x-create=dir")
    assert f"{outside}/x" in mounts
    assert list(outside.iterdir()) == []


def test_passes_and_detaching(enroot: Enroot) -> None:
    lines = """\
        tmpfs /mnt/late  tmpfs x-create=dir
        tmpfs /mnt/early tmpfs x-create=dir 0 -1
        tmpfs /mnt/freq  tmpfs x-create=dir -1
        """
    enroot.write(enroot.sysconf / "mounts.d/50-a.fstab", lines)
    enroot.write(enroot.config / "mounts.d/60-b.fstab", "umount /mnt/early none x-detach\n")
    # Passes as the hook sees them: before the mounts of pass 0.
    enroot.write(
        enroot.sysconf / "hooks.d/50-look.sh", '#!/bin/sh\ncp /proc/self/mountinfo "$HOME/seen"\n', 0o755
    )
    mounts = table(enroot)
    seen = (enroot.home / "seen").read_text()
    assert "/mnt/early " in seen
    assert "/mnt/freq " in seen
    assert "/mnt/late " not in seen
    assert "/mnt/late" in mounts
    assert "/mnt/early" not in mounts


def test_volumes_of_the_image_are_writable(enroot: Enroot) -> None:
    line = "${ENROOT_ROOTFS}/data /data none x-create=dir,bind,rw,nosuid,nodev\n"
    enroot.write(enroot.data / "small/etc/fstab", line)
    assert enroot.sh("echo kept > /data/x; (: > /other) 2>/dev/null || echo refused") == "refused"
    assert (enroot.data / "small/data/x").read_text() == "kept\n"


def test_hooks_see_and_add(enroot: Enroot) -> None:
    enroot.write(
        enroot.config / "hooks.d/10-first.sh",
        """\
        #!/bin/bash
        set -euo pipefail
        grep -q '^GIVEN=x$' "${ENROOT_ENVIRON}"
        [ -e "${ENROOT_ROOTFS}/etc/rc" ] && [ -n "${ENROOT_DATA_PATH}" ]
        echo "HOOK_PID=${ENROOT_PID}" >> "${ENROOT_ENVIRON}"
        echo "GIVEN=changed" >> "${ENROOT_ENVIRON}"
        echo "tmpfs /mnt/hook tmpfs x-create=dir" >> "${ENROOT_MOUNTS}"
        mkdir "${ENROOT_ROOTFS}/mnt/made" && mount -t tmpfs none "${ENROOT_ROOTFS}/mnt/made"
        """,
        0o755,
    )
    enroot.write(enroot.config / "hooks.d/20-off.sh", "#!/bin/sh\nexit 1\n", 0o644)
    told = enroot.sh(
        'echo $$ $HOOK_PID $GIVEN; grep -cE "/mnt/(hook|made)" /proc/self/mountinfo', "-e", "GIVEN=x"
    )
    pid, hook, given, count = told.split()
    assert (pid, given, count) == (hook, "changed", "2")


def test_a_failing_hook_stops_the_start(enroot: Enroot) -> None:
    path = enroot.write(enroot.sysconf / "hooks.d/10-no.sh", "#!/bin/sh\nexit 9\n", 0o755)
    done = enroot("start", "small", "true")
    assert done.returncode == 1
    assert f"[ERROR] {path}: the hook ended with status 9" in done.stderr


def test_the_default_hooks(shared: Enroot) -> None:
    account = shared.home.owner()
    assert [line.split(":")[0] for line in shared.sh("cat /etc/passwd").splitlines()][:3] == [
        "root",
        "nobody",
        account,
    ]
    assert shared.sh("cat /etc/group").splitlines()[0] == "root:x:0:"
    assert shared.sh("id -un") == account


def test_the_user_has_a_shadow_line_where_the_image_has_that_file(enroot: Enroot) -> None:
    """Without one PAM knows nobody of that name, and sshd lets nobody in."""
    account = enroot.home.owner()
    script = "cat /etc/shadow; stat -c %a /etc/shadow"
    assert enroot.sh("[ -e /etc/shadow ] || echo none") == "none"
    enroot.write(enroot.data / "small/etc/shadow", "daemon:*:1::::::\nroot:!:2::::::\n", 0o000)
    lines = ["root:!:2::::::", f"{account}:*::0:99999:7:::", "daemon:*:1::::::", "640"]
    assert enroot.sh(script).splitlines() == lines
    assert enroot.sh(script).splitlines() == lines


def test_a_file_takes_the_place_of_what_is_built_in(enroot: Enroot) -> None:
    (enroot.sysconf / "mounts.d").mkdir()
    (enroot.sysconf / "mounts.d/10-system.fstab").symlink_to("/dev/null")
    assert enroot.sh("[ -e /proc/self ] && echo proc; echo done") == "done"
    enroot.write(enroot.sysconf / "hooks.d/10-shadow.sh", "#!/bin/sh\nexit 0\n", 0o755)
    assert enroot.out("start", "small.sqsh", "cat", "/etc/passwd").startswith("daemon:")


def test_the_home_directory_comes_on_request(shared: Enroot) -> None:
    (shared.home / "mine").write_text("x")
    script = f'[ -e "{shared.home}/mine" ] && echo there || echo not'
    assert shared.sh(script) == "not"
    assert shared.sh(script, env={"ENROOT_MOUNT_HOME": "y"}) == "there"
    assert shared.sh("[ -e /root/mine ] && echo there", "--root", env={"ENROOT_MOUNT_HOME": "y"}) == "there"


def test_gpus_are_asked_of_nvidia_container_cli(enroot: Enroot) -> None:
    if shutil.which("nvidia-container-cli"):
        pytest.skip("the real one is here")
    done = enroot("start", "-e", "NVIDIA_VISIBLE_DEVICES=all", "small", "true")
    assert (done.returncode, "no GPU" in done.stderr) == (0, True)
    enroot.write(
        enroot.base / "home/bin/nvidia-container-cli", '#!/bin/sh\necho "$@" > "$HOME/asked"\n', 0o755
    )
    path = {"PATH": f"{enroot.home}/bin:/usr/bin:/bin"}
    options = ("-e", "NVIDIA_VISIBLE_DEVICES=0,1", "-e", "NVIDIA_DRIVER_CAPABILITIES=compute,utility")
    enroot.out("start", *options, "small", "true", env=path)
    asked = (enroot.home / "asked").read_text().split()
    assert asked[:2] == ["--user", "configure"]
    assert {"--device=0,1", "--compute", "--utility", "--no-cgroups"} <= set(asked)
    assert asked[-1] == str(enroot.data / "small")


def test_gpus_come_by_cdi_where_that_tool_is_missing(enroot: Enroot) -> None:
    if shutil.which("nvidia-container-cli"):
        pytest.skip("the real one is here")
    library = enroot.write(enroot.home / "driver/libfake.so.1", "of the driver\n")
    hook = {"hookName": "createContainer", "path": "/usr/bin/nvidia-ctk"}
    link = ["nvidia-ctk", "hook", "create-symlinks", "--link", "libfake.so.1::/usr/lib/libfake.so"]
    specification = {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            {
                "name": "0",
                "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/null"}]},
            }
        ],
        "containerEdits": {
            "env": ["FROM_CDI=yes"],
            "mounts": [
                {"hostPath": str(library), "containerPath": "/usr/lib/libfake.so.1", "options": ["ro"]}
            ],
            "hooks": [
                {**hook, "args": link},
                {**hook, "args": ["nvidia-ctk", "hook", "update-ldcache", "--folder", "/usr/lib"]},
            ],
        },
    }
    enroot.write(enroot.home / "cdi/nvidia.json", json.dumps(specification))
    script = "cat /usr/lib/libfake.so; [ -c /dev/nvidia0 ] && echo $FROM_CDI"
    script += "; [ -s /etc/ld.so.cache ] && echo cached"
    options = ("--ipc", "-e", "NVIDIA_VISIBLE_DEVICES=0")
    told = enroot.sh(script, *options, env={"ENROOT_CDI_PATH": str(enroot.home / "cdi")})
    assert told.splitlines() == ["of the driver", "yes", "cached"]
