"""cdi lines of the plan, with drivers made for the occasion: real libraries, devices and mounts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.spank_jail.cdi_driver import WHERE, Driver, compile_c, give_a_system, hook, install, snapshot
from tests.spank_jail.conftest import Jail
from tests.spank_jail.test_c_units import SOURCES, build, enter, make, tools  # noqa: F401 (fixtures)

DEV = "proc /proc proc defaults\ndev /dev dev mode=755,size=1m\n"
# The node's C library stands in for a distribution.
SYSTEM = "/usr/lib /usr/lib none rbind,ro\n/usr/lib64 /lib64 none bind,ro\n/usr/bin /usr/bin none bind,ro\n"
NEEDS_GPU = '#include <stdio.h>\nint cuInit(unsigned); int main(void) { printf("%d\\n", cuInit(0)); }\n'

REFUSED = """
    try:
        enter()
        tell(text="entered")
    except core.JailError as error:
        tell(text=error.message, file=error.file, line=error.line, target=error.target, number=error.number)
"""


@pytest.fixture
def driver(jail: Jail) -> Driver:
    return install(jail.base, "535.54.03")


@pytest.fixture(scope="module")
def stubs(build: Path) -> Path:  # noqa: F811
    done = make(build, "driver-stubs", f"OUT={build}")
    assert done.returncode == 0, done.stderr
    return build / "driver-stubs"


@pytest.fixture
def system(jail: Jail, driver: Driver, stubs: Path) -> Jail:
    """A jail with stubs, and a program in it that is linked to libcuda.so.1."""
    give_a_system(jail.root, stubs)
    library = str(driver.files / f"libcuda.so.{driver.version}")
    compile_c(NEEDS_GPU, jail.root / "data/program", library, "-Wl,--allow-shlib-undefined")
    return jail


def run_program(jail: Jail, plan: str) -> str:
    facts = jail.facts(
        """
        import subprocess
        environment = {"PATH": "/usr/bin"}
        enter()
        out = subprocess.run(["/data/program"], capture_output=True, text=True, env=environment)
        tell(out=out.stdout.strip() or out.stderr)
        """,
        SYSTEM + DEV + plan,
    )
    return str(facts["out"])


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


def test_the_later_directory_wins(system: Jail, driver: Driver) -> None:
    newer = install(system.base, "570.1.2")
    assert run_program(system, f"{driver.line},spec-dir={newer.specs}") == "570"
    assert run_program(system, f"{newer.line},spec-dir={driver.specs}") == "535"


def test_two_files_of_a_directory_conflict(jail: Jail, driver: Driver) -> None:
    driver.write(json.dumps(driver.spec(), indent="\t"), "other.json")
    facts = jail.facts(REFUSED, DEV + driver.line)
    assert 'other.json" define this device; remove it from one of them' in facts["text"]


def test_json_is_read_as_well(system: Jail, driver: Driver) -> None:
    (driver.specs / "nvidia.yaml").unlink()
    driver.write(json.dumps(driver.spec(), indent="\t"), "nvidia.json")
    assert run_program(system, driver.line) == "535"


def test_an_unknown_device_is_told_what_there_is(jail: Jail, driver: Driver) -> None:
    facts = jail.facts(REFUSED, driver.line.replace("=all", "=7"))
    assert "has this device; of its kind there are: 0, all" in facts["text"]
    assert facts["target"] == "nvidia.com/gpu=7"


@pytest.mark.parametrize("gone", ["library", "directory"])
def test_nofail_leaves_out_all_or_nothing(system: Jail, driver: Driver, gone: str) -> None:
    if gone == "library":
        (driver.files / "nvoptix.bin").unlink()
    else:
        (system.root / "usr/local/nvidia/bin").rmdir()
    facts = system.facts(
        "notices = enter(); tell(notices=notices, mounts=mounts(), dev=os.listdir('/dev'))",
        f"{DEV}{driver.line},nofail",
    )
    assert len(facts["notices"]) == 1
    assert (
        'nvoptix.bin" is missing' in facts["notices"][0]
        or "lacks the driver's directory" in facts["notices"][0]
    )
    assert not any("nvidia" in mount for mount in facts["mounts"])
    assert not any("nvidia" in name for name in facts["dev"])


def edited(driver: Driver, **changes: Any) -> dict[str, Any]:
    spec = driver.spec()
    spec["containerEdits"].update(changes)
    return spec


def bad_specs(driver: Driver) -> list[tuple[dict[str, Any] | str, int, str]]:
    """A wrong specification, the line to be named, and what is said."""
    header = 'cdiVersion: "0.5.0"\nkind: nvidia.com/gpu\n'
    device = "devices:\n- name: all\n  containerEdits:\n"
    mount, node = (f"{header}{device}    {kind}:\n" for kind in ("mounts", "deviceNodes"))
    return [
        ("", 1, "the file is empty"),
        ('{"cdiVersion": "0.5.0", "kind": "nvi', 1, "neither YAML nor JSON"),
        (header + "devices: [\n", 4, "neither YAML nor JSON"),
        ('kind: nvidia.com/gpu\ncdiVersion: "9.0.0"\n', 2, 'cdiVersion "9.0.0" is not known'),
        ("[]", 1, "there is no cdiVersion"),
        (header + "devices: {}\n", 3, "devices must be a list"),
        (header + "devices: &a []\n", 3, "anchors (&)"),
        (header + "devices: *a\n", 3, "anchors (&)"),
        (header + "x: 1\n", 3, 'no key "x"'),
        (header + "kind: again\n", 3, 'the key "kind" is there twice'),
        (header + "annotations: " + "[" * 40 + "]" * 40 + "\n", 3, "nested deeper"),
        (header + "---\n" + header, 3, "a second document"),
        (header + "annotations: [" + "0," * 200001 + "]\n", 3, "more values"),
        (header + device + "    env: [NOVALUE]\n", 6, "NAME=VALUE"),
        (mount + "    - hostPath: relative\n      containerPath: /x\n", 7, "absolute path"),
        (mount + "    - {hostPath: /etc, containerPath: /x/../y}\n", 7, 'must not contain ".."'),
        (mount + "    - {hostPath: /etc, containerPath: /x, options: [loop]}\n", 7, '"loop"'),
        (node + "    - path: /etc/shadow\n", 7, "must be below /dev"),
        (node + "    - path: /dev/x\n      major: many\n", 8, "must be a number"),
        (node + "    - {path: /dev/x, hostPath: /etc/passwd}\n", 7, "is no device"),
        (header + "devices: [{name: a b}]\n", 3, "no CDI name"),
        (header + "devices: [{name: a}, {name: a}]\n", 3, "is there twice"),
        ("x" * (4 * 1024 * 1024 + 1), 0, "at most 4194304 bytes"),
    ]  # fmt: skip


@pytest.mark.parametrize("which", range(23))
def test_a_wrong_specification_is_told_where_and_why(system: Jail, driver: Driver, which: int) -> None:
    spec, line, text = bad_specs(driver)[which]
    driver.write(spec)
    facts = system.facts(REFUSED, f"{DEV}{driver.line},nofail")
    assert text in facts["text"]
    assert (facts["file"], facts["line"]) == (str(driver.specs / "nvidia.yaml"), line)


def test_a_wrong_link_of_a_hook_is_named(system: Jail, driver: Driver) -> None:
    driver.write(edited(driver, hooks=[hook("create-symlinks", "--link", "nowhere")]))
    assert "expected CONTENT::/PATH" in system.facts(REFUSED, DEV + driver.line)["text"]


def test_the_environment_is_handed_out(jail: Jail, driver: Driver) -> None:
    facts = jail.facts("tell(got=core.cdi_environment(plan, trust_owners=True))", driver.line)
    assert facts["got"] == {"NVIDIA_VISIBLE_DEVICES": "void", "DRIVER": driver.version}


FAILURES = """
        def attempt(nth, number):
            reader, writer = os.pipe()
            if not os.fork():
                before = len(os.listdir("/proc/self/fd"))
                with core.failing_call(nth, number):
                    try:
                        notices = enter()
                        shown = [path for path in mounts() + os.listdir("/dev") if "nvidia" in path]
                        whole = len(shown) >= 6 and os.path.exists("/usr/local/nvidia/bin/nvidia-smi")
                        result = "whole" if whole else "out" if not shown else "half: %s" % shown
                        result += " after %d" % core.calls_made()
                    except core.JailError as error:
                        named = (error.syscall and error.number == number) or number == errno.ENOENT
                        result = "clean" if named else "unnamed: " + error.message
                        if os.path.exists("/proc/self/fd") and len(os.listdir("/proc/self/fd")) != before:
                            result = "descriptor left open: " + error.message
                os.write(writer, result.encode())
                os._exit(0)
            os.close(writer)
            with open(reader) as stream:
                result = stream.read()
            os.wait()
            return result

        results, nth = [], 1
        while nth < 500 and not (results and " after " in results[-1] and int(results[-1].split()[-1]) < nth):
            results.append(attempt(nth, errno.NUMBER))
            nth += 1
        tell(results=[r.split(" after ")[0] for r in results])
"""


@pytest.mark.parametrize(("number", "options", "expected"), [
    ("EIO", "", {"clean", "whole"}),
    # What is missing may be left out, but then all of it.
    ("ENOENT", ",nofail", {"clean", "whole", "out"}),
])  # fmt: skip
def test_every_call_may_fail(
    system: Jail, driver: Driver, number: str, options: str, expected: set[str]
) -> None:
    facts = system.facts(FAILURES.replace("NUMBER", number), f"{DEV}{driver.line}{options}\n")
    assert set(facts["results"]) == expected
    assert len(facts["results"]) > 80
    if number == "EIO":  # /dev's devices and the driver's are bound where mknod fails, by design
        assert facts["results"].count("whole") == 1
    else:
        assert facts["results"].count("out") >= 3


def test_a_missing_parser_is_named(system: Jail, driver: Driver) -> None:
    facts = system.facts(
        """
        class Found(Exception): pass
        texts, nth = [], 1
        while not any("libyaml" in text for text in texts):
            if not os.fork():
                with core.failing_call(nth, errno.ENOENT):
                    try:
                        enter()
                        text = "entered"
                    except core.JailError as error:
                        text = error.message
                (base / "said").write_text(text)
                os._exit(0)
            os.wait()
            texts.append((base / "said").read_text())
            nth += 1
        tell(text=texts[-1])
        """,
        driver.line,
    )
    assert "libyaml-0.so.2, which reads CDI specifications, cannot be loaded" in facts["text"]
    assert "install libyaml-0-2 on this node" in facts["text"]


def needs_root() -> None:
    if os.geteuid():
        pytest.skip("needs root: it makes device nodes")


def test_jail_enter_makes_devices_and_sets_variables(build: Path, system: Jail, driver: Driver) -> None:  # noqa: F811
    needs_root()
    for version, (major, minor) in {"1.0.0": (1, 3), "0.3.0": (1, 7)}.items():
        os.mknod(system.node / version, 0o20660, os.makedev(major, minor))
        os.chown(system.node / version, 0, 4242)
        (system.node / version).chmod(0o660)
        nodes = [{"path": f"/dev/own/{version}", "hostPath": str(system.node / version)}]
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


def test_a_specification_that_others_can_write_is_refused(build: Path, system: Jail, driver: Driver) -> None:  # noqa: F811
    needs_root()
    (driver.specs / "nvidia.yaml").chmod(0o666)
    system.plan.write_text(DEV + driver.line)
    done = enter(build, "--root", str(system.root), "--plan", str(system.plan), "--check")
    assert done.returncode == 1
    assert "the CDI specification must be writable by root alone" in done.stderr


def test_a_program_is_not_linked_to_the_parser(build: Path) -> None:  # noqa: F811
    enter(build, "--help")
    assert "yaml" not in subprocess.run(["ldd", build / "jail-enter"], capture_output=True, text=True).stdout


def test_the_image_knows_every_place() -> None:
    listed = (SOURCES.parent / "images/jail/files/etc/ld.so.conf.d/000-cellblock-nvidia.conf").read_text()
    assert listed.splitlines()[-1] == "/usr/local/nvidia/lib64" != WHERE
