# SPDX-License-Identifier: Apache-2.0
"""Entering a jail, in user and mount namespaces of its own: the code that ships, without Slurm."""

from __future__ import annotations

import os
from pathlib import Path

from tests.spank_jail.conftest import Jail

DEVICES = ["null", "zero", "full", "random", "urandom", "tty", "fd", "stdin", "stdout", "stderr", "ptmx"]
DEVICES += ["pts", "shm", "mqueue"]

KERNEL_PARTS = """
    proc   /proc proc   defaults
    sysfs  /sys  sysfs  ro
    dev    /dev  dev    mode=0755,size=1m
    devpts /dev/pts devpts mode=0620,ptmxmode=0666
    tmpfs  /dev/shm tmpfs mode=1777,size=1m
    mqueue /dev/mqueue mqueue defaults
    tmpfs  /run  tmpfs  mode=0755,size=2m
    tmpfs  /tmp  tmpfs  mode=1777,size=1m,x-jail.per-job
"""


def test_the_jail_becomes_the_root(jail: Jail) -> None:
    facts = jail.facts("""
        enter()
        tell(release=open("/etc/os-release").read(), cwd=os.getcwd(), up=sorted(os.listdir("/..")))
    """)
    assert facts["release"] == "NAME=jail\n"
    assert facts["cwd"] == "/"
    assert "etc" in facts["up"]
    assert "home" not in facts["up"]


def test_the_kernels_file_systems_are_there(jail: Jail) -> None:
    facts = jail.facts(
        """
        enter()
        with open("/dev/null", "w") as null:
            null.write("x")
        master, slave = os.openpty()
        shm = os.stat("/dev/shm").st_mode
        tell(mounts=mounts(), dev=sorted(os.listdir("/dev")), tty=os.ttyname(slave), shm=oct(shm),
             zero=len(open("/dev/zero", "rb").read(8)), ro=errno_of(os.mkdir, "/sys/x"))
        """,
        KERNEL_PARTS,
    )
    for target in ("/", "/proc", "/sys", "/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/run", "/tmp"):
        assert target in facts["mounts"]
    assert facts["dev"] == sorted(DEVICES)
    assert facts["tty"] == "/dev/pts/0"
    assert facts["shm"] == "0o41777"
    assert facts["zero"] == 8


def test_nothing_of_the_outside_is_left_in_the_namespace(jail: Jail) -> None:
    facts = jail.facts("enter(); tell(mounts=mounts())", "proc /proc proc defaults\n")
    assert facts["mounts"] == ["/", "/proc"]


def test_read_only_is_enforced_from_the_first_moment(jail: Jail) -> None:
    facts = jail.facts(
        """
        enter()
        tell(make=errno_of(os.mkdir, "/data/x"), write=errno_of(os.open, "/data/file", os.O_WRONLY),
             below=errno_of(os.mkdir, "/data/below/x"), text=open("/data/file").read(),
             rw=errno_of(os.mkdir, "/run/x"))
        """,
        "{node} /data none rbind,ro\n{node} /run none bind\n",
    )
    assert facts == {
        "make": "EROFS", "write": "EROFS", "below": "EROFS", "text": "of the node\n", "rw": "done",
    }  # fmt: skip
    assert (jail.node / "x").is_dir()


def test_noexec_and_nodev_are_enforced(jail: Jail) -> None:
    (jail.node / "script").write_text("#!/bin/true\n")
    (jail.node / "script").chmod(0o755)
    facts = jail.facts(
        """
        enter()
        tell(execute=errno_of(os.execv, "/data/script", ["x"]),
             flags=[line.split()[5] for line in open("/proc/self/mountinfo") if " /data " in line])
        """,
        "{node} /data none bind,noexec,nosuid\nproc /proc proc defaults\n",
    )
    assert facts["execute"] == "EACCES"
    assert {"noexec", "nosuid", "nodev"} <= set(facts["flags"][0].split(","))


def test_a_single_file_is_laid_over(jail: Jail) -> None:
    facts = jail.facts(
        """
        enter()
        tell(release=open("/etc/os-release").read(), made=open("/opt/deep/file").read())
        """,
        "{node}/file /etc/os-release none bind,ro\n{node}/file /opt/deep/file none bind,x-create=file\n",
    )
    assert facts == {"release": "of the node\n", "made": "of the node\n"}
    assert (jail.root / "etc/os-release").read_text() == "NAME=jail\n"


def test_a_device_of_the_node_keeps_its_owner_and_mode(jail: Jail) -> None:
    """Root inside could take /dev/null from all jobs of the node, where jobs have the node's."""
    os.mkfifo(jail.node / "fifo")
    facts = jail.facts(
        """
        enter()
        own = ["/dev/null", "/opt/null", "/opt/fifo"]
        for path in own[:2]:
            with open(path, "w") as null:
                null.write("x")
        tell(mode=[errno_of(os.chmod, path, 0o600) for path in own],
             owner=[errno_of(os.chown, path, 0, 0) for path in own],
             times=[errno_of(os.utime, path, (0, 0)) for path in own])
        """,
        KERNEL_PARTS
        + "    /dev/null /opt/null none bind,x-create=file\n"
        + "    {node}/fifo /opt/fifo none bind,x-create=file\n",
    )
    assert facts == dict.fromkeys(("mode", "owner", "times"), ["EROFS"] * 3)


def test_a_target_that_is_a_link_mounts_where_it_leads_inside(jail: Jail) -> None:
    (jail.root / "out").symlink_to("../../../../../../data")
    facts = jail.facts("enter(); tell(data=os.listdir('/data'))", "{node} /out none bind\n")
    assert sorted(facts["data"]) == ["below", "file"]


def test_a_missing_source_is_an_error_that_says_what_to_do(jail: Jail) -> None:
    facts = jail.facts(
        """
        try:
            enter()
        except core.JailError as error:
            tell(text=error.message, line=error.line, target=error.target, number=error.number)
        """,
        "tmpfs /run tmpfs defaults\n{node}/gone /data none bind\n",
    )
    assert facts["line"] == 2
    assert facts["target"] == "/data"
    assert 'the source "' in facts["text"]
    assert "make it, or add nofail" in facts["text"]


def test_nofail_leaves_out_what_is_missing_and_says_so(jail: Jail) -> None:
    facts = jail.facts(
        "notices = enter(); tell(notices=notices, data=os.listdir('/data'))",
        """
        {node}/gone /data none bind,nofail
        {node} /no/such/target none bind,nofail
        {node} /data none bind,x-jail.if=/no/such/path
        cdi example.com/none=all cdi nofail
        """,
    )
    assert facts["data"] == []
    assert [notice.split(": ")[0].rsplit(":")[-1] for notice in facts["notices"]] == ["2", "3", "4", "5"]
    assert facts["notices"][0].endswith('gone" is missing on this node; make it')
    assert facts["notices"][2].endswith('left out: "/no/such/path" of x-jail.if is not there')


def test_nofail_does_not_hide_a_wrong_parameter(jail: Jail) -> None:
    facts = jail.facts(
        """
        try:
            enter()
        except core.JailError as error:
            tell(text=error.message, syscall=error.syscall)
        """,
        "tmpfs /tmp tmpfs size=much,nofail\n",
    )
    assert facts["syscall"] == "fsconfig"
    assert "the kernel refuses size=much" in facts["text"]


def test_a_file_over_a_directory_is_refused(jail: Jail) -> None:
    facts = jail.facts(
        "\ntry:\n    enter()\nexcept core.JailError as error:\n    tell(text=error.message)\n",
        "{node}/file /data none bind\n",
    )
    assert "must both be directories or both be files" in facts["text"]


def test_device_nodes_of_the_volume_are_dead(jail: Jail) -> None:
    facts = jail.facts(
        "enter(); tell(options=[l.split()[5] for l in open('/proc/self/mountinfo') if l.split()[4] == '/'])",
        "proc /proc proc defaults\n",
    )
    assert "nodev" in facts["options"][0].split(",")


def test_the_node_sees_none_of_it(jail: Jail) -> None:
    jail.facts("enter(); tell(ok=True)", KERNEL_PARTS)
    assert str(jail.base) not in Path("/proc/self/mountinfo").read_text()
    assert list((jail.root / "dev").iterdir()) == []
