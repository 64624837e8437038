# SPDX-License-Identifier: Apache-2.0
"""Where cdi lines of the plan put what a driver is made of: real libraries, devices and mounts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from tests.spank_jail.cdi.driver import (
    DEV,
    REFUSED,
    SYSTEM,
    WHERE,
    Driver,
    edited,
    install,
    needs_root,
    run_program,
    snapshot,
)
from tests.spank_jail.conftest import Jail
from tests.spank_jail.test_c_units import SOURCES, enter


def test_a_program_finds_the_nodes_driver(system: Jail, driver: Driver) -> None:
    assert run_program(system, driver.line) == "535"


def test_nodes_may_differ(system: Jail, driver: Driver) -> None:
    newer = install(system.base, "570.1.2")
    assert [run_program(system, node.line) for node in (driver, newer, driver)] == ["535", "570", "535"]


def test_a_node_without_gpus_shows_the_stubs(system: Jail, tmp_path: Path) -> None:
    cuda_error_no_device = "100"
    line = f"cdi nvidia.com/gpu=all cdi nofail,spec-dir={tmp_path}/none"
    assert run_program(system, line) == cuda_error_no_device


def test_ldconfig_caches_the_same_names_everywhere(system: Jail, driver: Driver) -> None:
    names = """
        import subprocess
        enter()
        subprocess.run(["/sbin/ldconfig"], check=True)
        listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
        tell(names=sorted(line.split()[0] for line in listed.splitlines() if "/nvidia/" in line))
    """
    (system.root / "sbin").mkdir()
    plan = f"{SYSTEM}{DEV}/usr/sbin /sbin none rbind,ro\n"
    without = system.facts(names, plan)["names"]
    assert "libnvcuvid.so.1" in without
    # This node's driver has libcuda alone; libcuda.so is a name that ldconfig takes from a link.
    assert set(system.facts(names, plan + driver.line)["names"]) - {"libcuda.so"} == set(without)


def test_nothing_is_written_to_the_volume(system: Jail, driver: Driver) -> None:
    before = snapshot(system.root)
    assert run_program(system, driver.line) == "535"
    assert snapshot(system.root) == before


def test_everything_has_its_place(system: Jail, driver: Driver) -> None:
    facts = system.facts(
        """
        notices = enter()
        lib = "/usr/local/nvidia/lib64/"
        node, link = os.stat("/dev/nvidia0"), "/dev/dri/by-path/pci-0000:01:00.0-card"
        tell(notices=notices, libraries=sorted(n for n in os.listdir(lib) if "libcuda." in n),
             cuda=os.readlink(lib + "libcuda.so.1"),
             plain=os.readlink(lib + "libcuda.so"),
             smi=os.access("/usr/local/nvidia/bin/nvidia-smi", os.X_OK),
             device=[os.major(node.st_rdev), os.minor(node.st_rdev), stat.S_ISCHR(node.st_mode)],
             zeros=len(open("/dev/nvidia0", "rb").read(4)), link=os.readlink(link),
             card=stat.S_ISCHR(os.stat(link).st_mode),
             make=errno_of(os.mkdir, lib + "x"),
             change=errno_of(os.open, lib + "libcuda.so.1", os.O_WRONLY))
        """,
        DEV + driver.line,
    )
    assert facts["libraries"] == ["libcuda.so", "libcuda.so.1", f"libcuda.so.{driver.version}"]
    assert (facts["cuda"], facts["plain"]) == (f"libcuda.so.{driver.version}", "libcuda.so.1")
    assert facts["device"] == [1, 5, True]
    assert (facts["zeros"], facts["link"], facts["card"], facts["smi"]) == (4, "../card1", True, True)
    assert (facts["make"], facts["change"]) == ("EROFS", "EROFS")
    assert [notice.split("left out: ")[1] for notice in facts["notices"]] == [
        "1 files that the jail has no place for: /usr/share/nvidia/nvoptix.bin",
        "1 hooks, which are never run: nvidia-cdi-hook enable-cuda-compat",
    ]


def test_a_file_is_shown_where_the_jail_has_a_place_for_it(system: Jail, driver: Driver) -> None:
    (system.root / "usr/share/nvidia").mkdir(parents=True)
    (system.root / "usr/share/nvidia/nvoptix.bin").write_text("of the jail")
    facts = system.facts(
        "enter(); tell(text=open('/usr/share/nvidia/nvoptix.bin').read())", DEV + driver.line
    )
    assert facts["text"] == driver.version
    assert (system.root / "usr/share/nvidia/nvoptix.bin").read_text() == "of the jail"


def test_x_create_makes_the_place(system: Jail, driver: Driver) -> None:
    facts = system.facts(
        "enter(); tell(text=open('/usr/share/nvidia/nvoptix.bin').read())",
        f"{DEV}{driver.line},x-create=file",
    )
    assert facts["text"] == driver.version
    assert (system.root / "usr/share/nvidia/nvoptix.bin").read_text() == ""


def test_two_lines_share_the_directory(system: Jail, driver: Driver) -> None:
    again = driver.line.replace("=all", "=0")
    facts = system.facts(
        """
        enter()
        lib = "/usr/local/nvidia/lib64"
        tell(libraries=len([n for n in os.listdir(lib) if "libcuda." in n]), mounts=mounts().count(lib))
        """,
        f"{DEV}{driver.line}\n{again}\n",
    )
    assert facts == {"libraries": 3, "mounts": 1}


def test_devices_are_never_made_on_the_volume(system: Jail, driver: Driver) -> None:
    facts = system.facts(REFUSED, driver.line)
    assert "nothing is made on the volume or on the node" in facts["text"]
    assert facts["target"] == "/dev/nvidiactl"
    assert list((system.root / "dev").iterdir()) == []


def test_a_library_for_another_processor_is_left_out(system: Jail, driver: Driver) -> None:
    spec, old = driver.spec(), driver.files / "libold.so.1"
    header = bytearray((driver.files / f"libcuda.so.{driver.version}").read_bytes())
    header[4] = 1  # ELFCLASS32
    old.write_bytes(header)
    spec["containerEdits"]["mounts"].append({"hostPath": str(old), "containerPath": "/usr/lib32/libold.so.1"})
    driver.write(spec)
    facts = system.facts("tell(notices=enter())", DEV + driver.line)
    assert any(
        "1 libraries for another kind of processor: /usr/lib32/libold.so.1" in n for n in facts["notices"]
    )


def test_jail_enter_makes_devices_and_sets_variables(build: Path, system: Jail, driver: Driver) -> None:
    needs_root()
    for version, (major, minor) in {"1.0.0": (1, 3), "0.3.0": (1, 7)}.items():
        os.mknod(system.node / version, 0o20660, os.makedev(major, minor))
        os.chown(system.node / version, 0, 4242)
        (system.node / version).chmod(0o660)
        nodes: list[dict[str, Any]] = [
            {"path": f"/dev/own/{version}", "hostPath": str(system.node / version)}
        ]
        nodes += [{"path": "/dev/given", "type": "c", "major": 1, "minor": 5, "fileMode": 0o600}]
        driver.write({**edited(driver, deviceNodes=nodes), "cdiVersion": version})
        system.plan.write_text(SYSTEM + DEV + driver.line)
        look = f"stat -c '%t:%T %a %g %h' /dev/own/{version} /dev/given; "
        look += "head -c3 /dev/given | wc -c; echo $DRIVER"
        done = enter(build, "--root", str(system.root), "--plan", str(system.plan), "--", "sh", "-c", look)
        assert done.stdout.splitlines() == [
            f"{major}:{minor} 660 4242 1",
            "1:5 600 0 1",
            "3",
            driver.version,
        ], done


def test_a_program_is_not_linked_to_the_parser(build: Path) -> None:
    enter(build, "--help")
    assert "yaml" not in subprocess.run(["ldd", build / "jail-enter"], capture_output=True, text=True).stdout


def test_the_image_knows_every_place() -> None:
    listed = (SOURCES.parent / "images/jail/files/etc/ld.so.conf.d/000-cellblock-nvidia.conf").read_text()
    assert listed.splitlines()[-1] == "/usr/local/nvidia/lib64" != WHERE
