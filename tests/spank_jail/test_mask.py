# SPDX-License-Identifier: Apache-2.0
"""/proc and /sys from level capabilities up: covered, read-only, and no better one in a user namespace."""

from __future__ import annotations

from tests.spank_jail.conftest import Distribution, Jail
from tests.spank_jail.test_enter import KERNEL_PARTS

# What takes writes of uid 0 without capabilities, and is harmless: a trigger that wakes the writer alone.
WRITABLE = {"/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/irq", "/proc/pressure/memory"}

NESTED = """
    enter_confined()
    Path("/root/inner").write_text('''
    set +e
    try() { name=$1; shift; "$@" 2>/dev/null && echo "$name=done" || echo "$name=refused"; }
    try proc-rw mount -t proc proc /mnt
    try proc-ro mount -t proc -o ro proc /mnt
    try remount mount -o remount,bind,rw /mnt
    try write-fresh sh -c 'cat /mnt/sys/kernel/core_pattern > /mnt/sys/kernel/core_pattern'
    try write sh -c 'cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern'
    try remount-sys mount -o remount,bind,rw /proc/sys
    try uncover-sys umount /proc/sys
    try uncover umount -l /proc
    try hidden ls /proc/directory
    try sysfs-rw mount -t sysfs sysfs /srv
    try uncover-firmware umount /sys/firmware
    try cgroup mount -t cgroup2 cgroup2 /srv
    mkdir -p /tmp/new && mount --rbind / /tmp/new && mkdir -p /tmp/new/tmp/old && cd /tmp/new
    try pivot pivot_root . tmp/old
    try hidden-in-copy ls /proc/directory
    try uncover-old umount -l /tmp/old/proc
    try drop-old umount -l /tmp/old
    try proc-later mount -t proc -o ro proc /opt
    ''')
    tried = dict(line.split("=") for line in run("unshare", *UNSHARE, "sh", "/root/inner").split())
    tell(uid_map=run("unshare", *UNSHARE, "cat", "/proc/self/uid_map").split(), **tried)
"""


def nested(distribution: Distribution, *options: str) -> dict[str, object]:
    return distribution.facts(f"UNSHARE = {list(options)!r}\n" + NESTED.replace("\n    ", "\n"))


def test_parts_of_proc_and_sys_are_covered_or_read_only(jail: Jail) -> None:
    facts = jail.facts(
        """
        enter(level="capabilities")
        tell(mounts={l.split()[4]: l.split()[5].split(",")[0] for l in open("/proc/self/mountinfo")},
             keys=open("/proc/keys").read() if os.path.exists("/proc/keys") else "",
             own=errno_of(os.open, "/proc/self/comm", os.O_WRONLY),
             sys=errno_of(os.open, "/proc/sys/kernel/hostname", os.O_WRONLY),
             base=os.path.exists("/proc/directory"))
        """,
        KERNEL_PARTS.replace("sysfs  ro", "sysfs  defaults"),
    )
    assert {"/proc/sys": "ro", "/proc/bus": "ro", "/proc/fs": "ro", "/sys": "ro"}.items() <= facts[
        "mounts"
    ].items()
    assert facts["sys"] == "EROFS"
    assert facts["own"] == "done"
    assert facts["keys"] == ""
    assert not facts["base"]


def test_level_filesystem_masks_nothing(jail: Jail) -> None:
    facts = jail.facts("enter(); tell(mounts=mounts())", "proc /proc proc defaults\n")
    assert facts["mounts"] == ["/", "/proc"]


def test_uid_0_without_capabilities_can_change_nothing_of_the_kernel(distribution: Distribution) -> None:
    facts = distribution.facts("""
        enter_confined()
        def takes_writes(path):
            # Root opens what nobody can write, too; EIO is how /proc says that a file has no use for it.
            try:
                fd = os.open(path, os.O_WRONLY)
                os.write(fd, b"")
            except OSError as error:
                return error.errno not in (errno.EROFS, errno.EIO, errno.EPERM, errno.EACCES)
            return True
        def writable(top):
            for folder, folders, names in os.walk(top):
                # Processes are another matter: ptrace's rules guard those of others.
                folders[:] = [f for f in folders if folder != "/proc" or not f.isdigit() | f.endswith("self")]
                for path in (os.path.join(folder, name) for name in names):
                    if stat.S_ISREG(os.lstat(path).st_mode) and takes_writes(path):
                        yield path
        tell(proc=list(writable("/proc")), sys=list(writable("/sys"))[:9],
             core=errno_of(os.open, "/proc/sys/kernel/core_pattern", os.O_WRONLY),
             covered=[open(p).read() for p in ("/proc/timer_list", "/proc/keys") if os.path.exists(p)],
             firmware=os.listdir("/sys/firmware"), kmsg=errno_of(os.open, "/proc/kmsg", os.O_RDONLY))
    """)
    assert set(facts["proc"]) <= WRITABLE
    assert facts["sys"] == []
    assert facts["core"] == "EROFS"
    assert set(facts["covered"]) <= {""}
    assert facts["firmware"] == []
    assert facts["kmsg"] == "EPERM"


def test_a_user_namespace_gets_a_proc_of_its_own_read_only(distribution: Distribution) -> None:
    facts = nested(distribution, "-Urm", "-pf")
    assert facts["uid_map"] == ["0", "0", "1"]  # uid 0 of the node, whom the kernel's files would obey
    assert facts["proc-rw"] == "refused"
    assert facts["proc-ro"] == "done"
    assert facts["remount"] == "refused"
    assert facts["write-fresh"] == "refused"
    assert facts["pivot"] == "done"
    assert facts["drop-old"] == "done"
    assert facts["proc-later"] == "done"


def test_a_user_namespace_uncovers_nothing(distribution: Distribution) -> None:
    facts = nested(distribution, "-Urm", "-pf", "--net", "--ipc", "--uts")
    tried = {"write", "remount-sys", "uncover-sys", "uncover", "hidden", "sysfs-rw", "uncover-firmware"}
    tried |= {"cgroup", "hidden-in-copy", "uncover-old"}
    assert {name: facts[name] for name in tried} == dict.fromkeys(tried, "refused")


def test_users_get_one_as_well(distribution: Distribution) -> None:
    facts = distribution.facts("""
        enter_confined()
        user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "unshare", "-Urmpf"]
        tell(ro=run(*user, "sh", "-c", "mount -t proc -o ro proc /proc && cat /proc/1/comm", cwd="/"),
             rw=run(*user, "mount", "-t", "proc", "proc", "/proc", cwd="/"))
    """)
    assert facts["ro"] == "sh"
    assert "permission denied" in facts["rw"]


def test_hidepid_ptraceable_hides_roots_processes_from_root_inside(distribution: Distribution) -> None:
    # hidepid=invisible does not: it spares the group 0, and root inside can take any other.
    facts = distribution.facts("""
        plan.write_text(PLAN.replace("proc   defaults", "proc   hidepid=ptraceable"))
        outside = os.getppid()
        enter_confined()
        tell(own=os.path.exists("/proc/self/comm"), outside=os.path.exists(f"/proc/{outside}"),
             score=errno_of(os.open, f"/proc/{outside}/oom_score_adj", os.O_WRONLY),
             nested=run("unshare", "-Urmpf", "mount", "-t", "proc", "-o", "ro", "proc", "/proc"))
    """)
    assert facts == {"own": True, "outside": False, "score": "ENOENT", "nested": ""}


def test_each_of_several_is_masked(jail: Jail) -> None:
    facts = jail.facts(
        """
        enter(level="capabilities")
        names = ("/proc/sys/kernel/hostname", "/data/sys/kernel/hostname", "/sys/kernel/profiling")
        tell(errors=[errno_of(os.open, name, os.O_WRONLY) for name in names if os.path.exists(name)],
             seen=sorted(os.listdir("/run")))
        """,
        """
        sysfs /sys sysfs rw
        proc /proc proc defaults
        proc /data proc defaults
        proc /run proc subset=pid
        """,
    )
    assert set(facts["errors"]) == {"EROFS"}
    assert "sys" not in facts["seen"]


def test_the_new_mount_api_gives_no_more(distribution: Distribution) -> None:
    facts = distribution.facts("""
        import platform
        enter_confined()
        FSOPEN, FSCONFIG, FSMOUNT, SETATTR = 430, 431, 432, 442
        Path("/root/inner").write_text('''
        import ctypes, errno, os, struct
        libc = ctypes.CDLL(None, use_errno=True)
        def call(number, *arguments):
            return libc.syscall(ctypes.c_long(number), *arguments)
        fs = call(430, b"proc", 0)
        assert call(431, fs, 6, None, None, 0) == 0, ctypes.get_errno()
        rw = call(432, fs, 0, 0)
        print(errno.errorcode[ctypes.get_errno()] if rw < 0 else "mounted")
        fs = call(430, b"proc", 0)
        call(431, fs, 6, None, None, 0)
        ro = call(432, fs, 0, 1)
        clear = struct.pack("QQQQ", 0, 1, 0, 0)
        print(ro >= 0, call(442, ro, b"", 0x1000, clear, 32), errno.errorcode[ctypes.get_errno()])
        '''.replace("\\n        ", "\\n"))
        tell(out=run("unshare", "-Urmpf", sys.executable, "/root/inner").split())
    """)
    assert facts["out"] == ["EPERM", "True", "-1", "EPERM"]


def test_a_proc_that_the_volume_brings_along_is_refused(jail: Jail) -> None:
    facts = jail.facts(
        """
        subprocess.run(["mount", "-t", "proc", "proc", str(root / "proc")], check=True)
        try:
            enter(level="capabilities")
        except core.JailError as error:
            tell(text=error.message, line=error.line)
        """,
        "proc /proc proc defaults\n",
    )
    assert "mounted here already, without masks" in facts["text"]
    assert facts["line"] == 1


def test_every_call_of_masking_may_fail_and_is_then_named(jail: Jail) -> None:
    facts = jail.facts(
        """
        results = ends(with_each_call_failing(lambda: enter(level="capabilities")))
        tell(wrong=[r for r in results if r != "clean"], calls=len(results))
        """,
        "proc /proc proc defaults\nsysfs /sys sysfs ro\n",
    )
    assert facts["wrong"] == []
    assert facts["calls"] > 50


def test_nofail_never_leaves_an_unmasked_proc(jail: Jail) -> None:
    # ENODEV is what nofail forgives: before the mount is attached the line is left out, afterwards not.
    facts = jail.facts(
        """
        def action():
            enter(level="capabilities")
            if not os.path.exists("/proc/self"):
                return "no proc"
            refused = errno_of(os.open, "/proc/sys/kernel/hostname", os.O_WRONLY) == "EROFS"
            return "masked" if refused else "unmasked"
        tell(ends=ends(with_each_call_failing(action, errno.ENODEV), errno.ENODEV))
        """,
        "proc /proc proc nofail\n",
    )
    assert set(facts["ends"]) == {"clean", "no proc"}
