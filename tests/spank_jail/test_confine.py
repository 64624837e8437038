# SPDX-License-Identifier: Apache-2.0
"""What root keeps and loses in the jail at level capabilities, tried as the node's own root."""

from __future__ import annotations

import errno
import platform
from pathlib import Path

import pytest

from tests.spank_jail import mount_core as core
from tests.spank_jail.conftest import Distribution, Jail

# Refused for some of their arguments only: tests/test_seccomp.c has those.
CONDITIONAL = {"clone", "unshare", "personality", "ioctl", "socket", "fcntl"}

STATUS = """
    def status(field):
        return int(next(l.split()[1] for l in open("/proc/self/status") if l.startswith(field + ":")), 16)
"""


def test_root_keeps_the_allowed_capabilities_and_may_gain_them_again(distribution: Distribution) -> None:
    facts = distribution.facts("""
        enter_confined()
        def sets(*prefix):
            out = run(*prefix, "grep", "-E", "^(Cap|NoNew|Seccomp:)", "/proc/self/status")
            return dict(line.split(":\\t") for line in out.splitlines())
        user = ["setpriv", "--reuid", "65534", "--clear-groups"]
        tell(root=sets(), user=sets(*user))
    """)
    allowed = f"{sum(1 << number for number in core.allowed_capabilities()):016x}"
    none = "0" * 16
    assert facts["root"] == {
        "CapInh": none, "CapPrm": allowed, "CapEff": allowed, "CapBnd": allowed, "CapAmb": none,
        "NoNewPrivs": "0", "Seccomp": "2",
    }  # fmt: skip
    assert facts["user"]["CapBnd"] == allowed
    assert facts["user"]["CapEff"] == none


def test_level_filesystem_takes_nothing(jail: Jail) -> None:
    facts = jail.facts(
        STATUS
        + """
    before = [status(field) for field in ("CapBnd", "CapEff", "Seccomp")]
    core.confine("filesystem")
    core.confine_final("filesystem")
    tell(same=before == [status(field) for field in ("CapBnd", "CapEff", "Seccomp")])
    """
    )
    assert facts["same"]


def test_root_manages_packages_users_and_files(distribution: Distribution) -> None:
    facts = distribution.facts("""
        enter_confined()
        os.environ["DEBIAN_FRONTEND"] = "noninteractive"
        package = Path("/root/package/DEBIAN")
        package.mkdir(parents=True)
        (package / "control").write_text("Package: cellblock-try\\nVersion: 1\\nArchitecture: all\\n"
                                         "Maintainer: none <none@localhost>\\nDescription: scripts\\n")
        (package / "postinst").write_text("#!/bin/sh\\nset -e\\nuseradd --system cellblock-try\\n"
            "touch /var/lib/cellblock-try\\nchown cellblock-try /var/lib/cellblock-try\\n"
            "chmod 4711 /var/lib/cellblock-try\\n")
        (package / "postinst").chmod(0o755)
        run("dpkg-deb", "--build", "/root/package", "/root/cellblock-try.deb")
        installed = run("apt-get", "install", "--yes", "--quiet", "/root/cellblock-try.deb")
        made = os.stat("/var/lib/cellblock-try")
        run("cp", "/usr/bin/id", "/usr/local/bin/own-id")
        os.chmod("/usr/local/bin/own-id", 0o4755)
        tell(installed=installed, status=run("dpkg-query", "-W", "-f", "${Status}", "cellblock-try"),
             mode=oct(made.st_mode), system=made.st_uid > 0,
             add=run("useradd", "--create-home", "zoe"), su=run("su", "-", "zoe", "-c", "whoami"),
             setcap=run("setcap", "cap_setuid+ep", "/usr/local/bin/own-id"),
             setuid=run("setpriv", "--reuid", "65534", "--clear-groups", "/usr/local/bin/own-id", "-u"),
             delete=run("userdel", "zoe"))
    """)
    assert facts["status"] == "install ok installed", facts["installed"]
    assert facts["mode"] == "0o104711"
    assert facts["system"]
    assert facts["add"] == ""
    assert facts["su"] == "zoe"
    assert facts["setcap"] == ""
    assert facts["setuid"] == "0"  # set-user-ID programs work: no_new_privs is not set
    assert facts["delete"] == ""


def test_programs_that_compute_go_on(distribution: Distribution) -> None:
    facts = distribution.facts("""
        import mmap, threading
        from multiprocessing import Pipe, Process, shared_memory
        enter_confined()
        class Vector(ctypes.Structure):
            _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
        secret = ctypes.create_string_buffer(b"of another process")
        child = os.fork()
        if not child:
            import signal
            signal.pause()
        copy = ctypes.create_string_buffer(len(secret))
        local, remote = (Vector(ctypes.addressof(b), len(b)) for b in (copy, secret))
        got = libc.process_vm_readv(child, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        traced = libc.ptrace(16, child, 0, 0)
        os.kill(child, 9)
        threads = []
        workers = [threading.Thread(target=threads.append, args=(i,)) for i in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        segment = shared_memory.SharedMemory(create=True, size=4096)
        segment.close(); segment.unlink()
        tell(read=got == len(secret) and copy.raw == secret.raw, traced=traced, threads=sorted(threads),
             randomize=run("setarch", "-R", "true"), locked=libc.mlock(copy, 8),
             affinity=bool(os.sched_setaffinity(0, os.sched_getaffinity(0)) is None))
    """)
    assert facts == {"read": True, "traced": 0, "threads": [0, 1, 2, 3], "randomize": "", "locked": 0,
                     "affinity": True}  # fmt: skip


def test_root_inside_cannot_reach_root_outside(distribution: Distribution) -> None:
    facts = distribution.facts("""
        outside = os.getppid()
        of_outside = Path(f"/proc/{outside}")
        enter_confined()
        tell(root=errno_of(os.listdir, of_outside / "root"), cwd=errno_of(os.readlink, of_outside / "cwd"),
             fd=errno_of(os.open, of_outside / "fd/0", 0),
             environ=errno_of(os.open, of_outside / "environ", 0),
             namespace=errno_of(os.open, of_outside / "ns/mnt", 0),
             trace=libc.ptrace(16, outside, 0, 0), init=errno_of(os.listdir, "/proc/1/root"),
             disk=errno_of(os.mknod, "/root/disk", stat.S_IFBLK | 0o600, os.makedev(8, 0)),
             chroot=errno_of(os.chroot, "/root"))
    """)
    refused = ("root", "cwd", "fd", "environ", "namespace", "init")
    assert {name: facts[name] for name in refused} == dict.fromkeys(refused, "EACCES")
    assert facts["trace"] == -1
    assert facts["disk"] == "EPERM"
    assert facts["chroot"] == "done"


def test_each_refused_call_gets_its_error(distribution: Distribution) -> None:
    always = [call for call in core.refused_calls() if call.name not in CONDITIONAL]
    facts = distribution.facts(f"""
        enter_confined()
        tell(errors=[syscall_error(number) for number in {[call.number for call in always]}])
    """)
    assert len(always) > 30
    assert facts["errors"] == [errno.errorcode[call.error] for call in always]


def test_mounting_takes_a_user_namespace(distribution: Distribution) -> None:
    facts = distribution.facts("""
        enter_confined()
        inside = lambda script: run("unshare", "-Urm", "sh", "-e", "-c", script)
        tell(plain=run("mount", "-t", "tmpfs", "tmpfs", "/mnt"), bind=run("mount", "--bind", "/etc", "/mnt"),
             tmpfs=inside("mount -t tmpfs t /mnt; stat -f -c %T /mnt"),
             overlay=inside("mount -t tmpfs t /mnt; cd /mnt; mkdir u w m;"
                            "mount -t overlay -o lowerdir=/etc,upperdir=u,workdir=w o m;"
                            "test -e m/passwd; echo seen"),
             pivot=inside("mount --rbind / /mnt; cd /mnt; pivot_root . tmp; echo in"),
             all=run("unshare", "-Urmpfinu", "true"), cgroup=run("unshare", "-UrC", "true"))
    """)
    assert facts["plain"].startswith("32: ")
    assert facts["bind"].startswith("32: ")
    assert facts["tmpfs"] == "tmpfs"
    assert facts["overlay"] == "seen"
    assert facts["all"] == ""
    assert "Operation not permitted" in facts["cgroup"]
    assert facts["pivot"] == "in"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="i386 programs are x86_64's")
def test_calls_of_another_abi_do_not_exist(distribution: Distribution) -> None:
    facts = distribution.facts("""
        import mmap
        enter_confined()
        code = mmap.mmap(-1, 4096, prot=7)
        code.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")  # mov eax, 20 (getpid of i386); int 0x80; ret
        getpid = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
        tell(i386=getpid(), x32=syscall_error(0x40000000 + 39))
    """)
    assert facts == {"i386": -errno.ENOSYS, "x32": "ENOSYS"}


def test_the_session_keyring_is_new(jail: Jail) -> None:
    facts = jail.facts(
        """
        import platform
        ADD_KEY, KEYCTL = (248, 250) if platform.machine() == "x86_64" else (217, 219)
        JOIN, SETPERM, SESSION, POSSESSOR_ONLY = 1, 5, -3, 0x3f000000
        libc.syscall(KEYCTL, JOIN, None)
        key = libc.syscall(ADD_KEY, b"user", b"cellblock-try", b"secret", 6, SESSION)
        libc.syscall(KEYCTL, SETPERM, key, POSSESSOR_ONLY)
        before = "cellblock-try" in open("/proc/keys").read()
        core.confine("capabilities")
        tell(before=before, after="cellblock-try" in open("/proc/keys").read())
        """
    )
    assert facts == {"before": True, "after": False}


def test_every_call_of_confining_may_fail_and_is_then_named(jail: Jail) -> None:
    facts = jail.facts(
        """
        def action():
            core.confine("capabilities")
            core.confine_final("capabilities")
        results = ends(with_each_call_failing(action))
        tell(wrong=[r for r in results if r != "clean"], calls=len(results))
        """
    )
    assert facts["wrong"] == []
    assert facts["calls"] > 30


def test_the_end_of_the_capabilities_is_not_taken_for_granted(jail: Jail) -> None:
    # EINVAL is how the kernel says that a capability does not exist; for one that exists it is a failure.
    facts = jail.facts(
        """
        results = with_each_call_failing(lambda: core.confine("capabilities"), errno.EINVAL)
        tell(results=ends(results, errno.EINVAL))
        """
    )
    survived = [result for result in facts["results"] if result != "clean"]
    assert len(survived) <= 1  # the one that ends the count


def test_the_reference_names_each_call_and_each_capability() -> None:
    text = (Path(__file__).parents[2] / "docs/jail-isolation.md").read_text()
    for call in core.refused_calls():
        assert f"`{call.name}`" in text, f"{call.name} is refused; docs/jail-isolation.md does not say why"
    kept = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `") and "| kept |" in line}
    header = Path("/usr/include/linux/capability.h")
    if not header.exists():
        pytest.skip("linux-libc-dev is not installed: it names the capabilities")
    numbers = {
        words[1].removeprefix("CAP_"): int(words[2])
        for words in (line.split() for line in header.read_text().splitlines())
        if len(words) == 3 and words[0] == "#define" and words[1].startswith("CAP_") and words[2].isdigit()
    }
    assert {numbers[name] for name in kept} == set(core.allowed_capabilities())
    assert [name for name in numbers if f"`{name}`" not in text] == []
